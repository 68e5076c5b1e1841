#include "trainer/cli/run_spec.h"

#include <utility>

#include "trainer/cli/run_parts.h"
#include "trainer/cli/values.h"
#include "trainer/data.h"
#include "trainer/elastic/rank_device.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr std::string_view kOneGpu = "cuda:";

bool uses_gpus(const RunSpec& spec) { return spec.device.starts_with("cuda"); }

// Fields that only have to be copied.
void copy_plain(const RunSpec& spec, const RunFacts& facts, RunOptions& options) {
  RankOptions& rank = options.rank;
  rank.socket = spec.socket;
  rank.ranks = spec.ranks;
  rank.steps = spec.steps;
  rank.device = spec.device;
  rank.pin = spec.pin;
  rank.router_trace = spec.router_trace;
  rank.data = facts.data ? facts.data->paths : spec.data;
  rank.report_routing = !spec.outputs.metrics.empty();
  options.own_daemon = spec.socket.empty();
  options.keeps_data =
      !options.own_daemon || !spec.own_daemon.data_dir.empty() || spec.own_daemon.keep;
  options.io = spec.own_daemon.io;
  options.daemon_timeout_ms = spec.own_daemon.timeout_ms;
  options.report_file = spec.outputs.report;
  options.metrics_file = spec.outputs.metrics;
  options.events_file = spec.outputs.events;
  options.schedule_trace_file = spec.outputs.schedule_trace;
  options.print_report = spec.outputs.report_on_stdout;
}

Status check_machine(const RunSpec& spec, const RunFacts& facts) {
  // The form of --device; whether it computes in the run's precision follows with the
  // configuration.
  CKPT_TRY(check_device(spec.device, Precision::kFp32));
  CKPT_TRY(facts.outputs);
  if (!uses_gpus(spec) || !facts.gpus) return {};
  const GpuFacts& gpus = *facts.gpus;
  if (gpus.count == 0) {
    return make_error(ErrorCode::kUnavailable, "--device {}: {}", spec.device, gpus.reason);
  }
  if (!spec.device.starts_with(kOneGpu)) return {};
  const auto index = whole_number<int>(spec.device.substr(kOneGpu.size()));
  if (index && *index < gpus.count) return {};
  return make_error(ErrorCode::kUnavailable, "--device {}: this machine has GPUs 0 to {}",
                    spec.device, gpus.count - 1);
}

// Rules for which the configuration of the model has to be known.
Status check_with_config(const RunFacts& facts, const RunOptions& options) {
  const RankOptions& rank = options.rank;
  CKPT_TRY(validate(rank.config, rank.ranks));
  CKPT_TRY(check_trace_fits(facts, rank.config.model));
  CKPT_TRY(validate(rank.partial, rank.config.model.experts));
  CKPT_TRY(check_device(rank.device, rank.config.precision));
  const uint64_t saved_step = facts.commit ? facts.commit->step : 0;
  CKPT_TRY(check_changes(options, saved_step + 1));
  if (!facts.data) return {};
  return check_data_fits(facts.data->paths, facts.data->bytes, rank.config.model.seq_len);
}

Fact next_fact(const RunSpec& spec, const RunFacts& facts) {
  if (uses_gpus(spec) && !facts.gpus) return Fact::kGpus;
  if (!facts.data) return Fact::kData;
  if (spec.resumes() && !facts.commit) return Fact::kCommit;
  if (spec.resumes() && !facts.commit_state) return Fact::kCommitState;
  return Fact::kNone;
}

}  // namespace

Result<ResolvedRun> RunSpec::resolve(const RunFacts& facts) const {
  ResolvedRun run;
  RunOptions& options = run.options;
  CKPT_TRY(check_flag_rules(*this, facts));
  copy_plain(*this, facts, options);
  CKPT_TRY(resolve_checkpoints(*this, options));
  CKPT_TRY(resolve_changes(*this, options));
  CKPT_TRY(resolve_placement(*this, facts, options));
  CKPT_TRY(resolve_commit_name(*this, run));
  CKPT_TRY(check_machine(*this, facts));
  run.notes = notes_on_flags(*this, facts);
  if (std::string note = note_on_domains(*this, options); !note.empty()) {
    run.notes.push_back(std::move(note));
  }
  // Also before the commit is known: a preset that does not exist is refused at once.
  CKPT_ASSIGN(options.rank.config, config_flags(*this, facts).apply(default_config()));
  if (resumes() && facts.commit) {
    CKPT_TRY(adopt_commit(*this, facts, run));
    if (run.done) return run;
  }
  if (!resumes() || facts.commit) CKPT_TRY(check_with_config(facts, options));
  if (facts.data && facts.commit_state) CKPT_TRY(check_same_data(*this, facts, run));
  run.needs = next_fact(*this, facts);
  if (run.needs != Fact::kNone) return run;
  // Last: planning a placement can take seconds.
  const std::vector<int64_t> none;
  CKPT_TRY(plan_placement_of_run(options,
                                 facts.commit_state ? facts.commit_state->routed_tokens : none));
  return run;
}

}  // namespace moetrain
