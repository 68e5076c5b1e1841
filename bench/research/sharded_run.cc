#include "bench/research/sharded_run.h"

#include <algorithm>
#include <set>

#include "bench/common/usage.h"
#include "bench/research/live_run.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;

namespace {

constexpr uint64_t kShardedRunSeconds = 300;

// The most memory that any rank has had so far. A rank that has ended tells no more.
Status sample_peak_memory(const LiveRun& run, uint64_t& most) {
  std::set<pid_t> ranks;
  for (const moetrain::RankEvent& event : run.events()) {
    const auto* joining = event.as<moetrain::JoiningEvent>();
    if (joining != nullptr && joining->pid > 0) ranks.insert(static_cast<pid_t>(joining->pid));
  }
  for (const pid_t rank : ranks) {
    const Result<Usage> usage = usage_of(rank);
    const bool ended = !usage.ok() && usage.error().code == ckpt::ErrorCode::kUnavailable;
    if (ended && most > 0) continue;
    if (!usage.ok()) return usage.error();
    most = std::max(most, usage->resident_bytes_peak);
  }
  return {};
}

}  // namespace

Result<ShardedRun> run_sharded(const StepWorkload& workload, std::vector<std::string> flags,
                               bool traces) {
  // No rank is lost. "restart" saves each step the agreement that survivors need.
  flags.insert(flags.end(), {"--on-loss", "restart"});
  if (traces) {
    flags.insert(flags.end(), {"--schedule-trace", workload.directory + "/schedule.json"});
  }
  ShardedRun ran;
  CKPT_ASSIGN(const auto run, LiveRun::start(workload, flags, kShardedRunSeconds));
  for (const uint64_t step : {workload.window.first, workload.window.last - 1}) {
    CKPT_TRY(run->await_step(step));
    CKPT_TRY(sample_peak_memory(*run, ran.resident_bytes_peak));
  }
  CKPT_TRY(run->finish());
  CKPT_ASSIGN(ran.figures, step_figures(run->events(), workload.window));
  CKPT_ASSIGN(ran.schedule, schedule_figures(run->events()));
  CKPT_ASSIGN(ran.loss_bits, loss_bits_of(run->events(), workload.window.last));
  return ran;
}

}  // namespace bench
