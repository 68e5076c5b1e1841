// Facts for RunSpec::resolve(): asks the machine, the files and ckptd.
#pragma once

#include <string>
#include <string_view>

#include "trainer/cli/run_spec.h"

namespace moetrain {

// The cheap facts: the environment and small files. kInvalidArgument if the file of --domains
// cannot be read, and for load_router_trace()'s errors.
Result<RunFacts> first_facts(const RunSpec& spec);

// Learns one fact that resolve() needs. `run` is what resolve() said last, with the socket of the
// ckptd to ask. Errors: those of Corpus::load(), find_saved_run() and load_trainer_state().
Status learn(Fact fact, const RunSpec& spec, const ResolvedRun& run, RunFacts& facts);

// The next step after "run X: no such run", or a run without a commit: words to append to the
// message. Empty for other messages.
std::string resume_remedy(std::string_view message);

}  // namespace moetrain
