// One run of ckptbench sharded, for its figures.
#pragma once

#include <string>
#include <vector>

#include "bench/common/step_run.h"
#include "bench/research/schedule_figures.h"

namespace bench {

struct ShardedRun {
  int order = 0;  // of popular experts
  StepFigures figures;
  uint32_t loss_bits = 0;            // of the last step; the same in every arm
  ScheduleFigures schedule;          // all zero where experts are replicated
  uint64_t resident_bytes_peak = 0;  // of the rank with most
};

// Runs moetrain with these flags more, to the workload's last step. `traces`: the first steps tell
// their schedule.
ckpt::Result<ShardedRun> run_sharded(const StepWorkload& workload, std::vector<std::string> flags,
                                     bool traces);

}  // namespace bench
