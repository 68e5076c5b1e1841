// The parts of RunSpec::resolve(), by topic. Each reads flags of the spec and fills in what
// they decide. Errors: kInvalidArgument, naming the flag.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/cli/run_spec.h"

namespace moetrain {

// run_rules.cc: bounds of numbers, and flags that need or exclude each other.
Status check_flag_rules(const RunSpec& spec, const RunFacts& facts);
// One sentence for each flag that was given and changes nothing.
std::vector<std::string> notes_on_flags(const RunSpec& spec, const RunFacts& facts);
// The flags that the two above know, for tests.
std::vector<std::string_view> flags_with_rules();

// run_checkpoints.cc
Status resolve_checkpoints(const RunSpec& spec, RunOptions& options);

// run_changes.cc: the reaction to lost ranks; kills, joins and leaves at given steps.
Status resolve_changes(const RunSpec& spec, RunOptions& options);
// Rejects changes that can never happen: of a rank that does not exist at that step, or at a step
// outside the run. `first_step`: the first step of the run.
Status check_changes(const RunOptions& options, uint64_t first_step);

// run_placement.cc. Expects what resolve_changes() fills in.
Status resolve_placement(const RunSpec& spec, const RunFacts& facts, RunOptions& options);
// A sentence if --domains leaves out ranks of this run; empty otherwise.
std::string note_on_domains(const RunSpec& spec, const RunOptions& options);
// Plans rank.placement for rank.config from the tokens routed so far ([layers * experts]; empty:
// not known). Errors: also those of plan_experts(), and a placement that the trainer unit cannot
// hold.
Status plan_placement_of_run(RunOptions& options, std::span<const int64_t> routed);

// run_trace.cc: --router-trace.
// The flags of the configuration, with the checksum of the trace.
ConfigSpec config_flags(const RunSpec& spec, const RunFacts& facts);
// Refuses a trace of another shape than the model.
Status check_trace_fits(const RunFacts& facts, const ModelConfig& model);
// Refuses a resume if the run and the flags name different traces, or only one of them names one.
Status check_same_trace(const RunSpec& spec, const RunFacts& facts, const ResolvedRun& run);

// run_resume.cc: --resume and --run.
Status resolve_commit_name(const RunSpec& spec, ResolvedRun& run);
// Takes over the configuration of facts.commit, which flags must not contradict; sets run.done.
Status adopt_commit(const RunSpec& spec, const RunFacts& facts, ResolvedRun& run);
// Refuses data that the commit was not trained on, unless --new-data allows it.
Status check_same_data(const RunSpec& spec, const RunFacts& facts, const ResolvedRun& run);

}  // namespace moetrain
