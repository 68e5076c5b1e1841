// Collects facts for RunSpec::resolve() from the machine, from files and from ckptd.
#pragma once

#include "trainer/cli/run_spec.h"

namespace moetrain {

// The cheap facts: the environment and small files. kInvalidArgument if the file of --domains
// cannot be read, and for load_router_trace()'s errors.
Result<RunFacts> first_facts(const RunSpec& spec);

// Learns one fact that resolve() needs. `run` is the last result of resolve(), with the socket of
// the ckptd to ask. Errors: those of Corpus::load(), find_saved_run() and load_trainer_state().
Status learn(Fact fact, const RunSpec& spec, const ResolvedRun& run, RunFacts& facts);

}  // namespace moetrain
