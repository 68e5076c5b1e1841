// What a run of moetrain says about its steps, as numbers. Pure: events in, figures out.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/result.h"
#include "trainer/elastic/events.h"
#include "trainer/report/report.h"

namespace bench {

struct StepWindow {
  uint64_t first = 0;  // steps that count: after this one ...
  uint64_t last = 0;   // ... up to this one
};

struct StepFigures {
  double step_seconds = 0;      // mean over the window, all that lies between steps included
  double stall_seconds = 0;     // a snapshot blocks the slowest rank so long: median of them
  double durable_seconds = 0;   // from begin until a rank knew: median
  uint64_t snapshot_bytes = 0;  // of all ranks: median over steps; 0: there were none
  uint64_t snapshots = 0;       // that became durable for at least one rank
  uint64_t failures = 0;        // snapshots of ranks that did not
  double busiest_tokens = 0;    // of a step, mean (moetrain::ExpertLoad)
  double max_over_mean = 0;     // mean over steps
  moetrain::report::ExpertExchange exchange;  // of the steps in the window
};
// The figures of a window of the run that these are all events of, of all ranks. Its steps are
// those of rank 0, which the others meet at every boundary. kFailedPrecondition if the run did not
// complete the window, or not without doing a step again.
ckpt::Result<StepFigures> step_figures(const std::vector<moetrain::RankEvent>& events,
                                       const StepWindow& window);

// The bits of a step's loss, which is the same on all ranks. kNotFound if no rank did the step.
ckpt::Result<uint32_t> loss_bits_of(const std::vector<moetrain::RankEvent>& events, uint64_t step);

// Steps of one run, with checkpoints and without in turns (--checkpoint-turns): a machine that is
// slow for a while is slow for both.
struct StepPair {
  double without_seconds = 0;  // a step, mean over its turn
  double with_seconds = 0;     // the same of the turn that follows
};
struct TurnFigures {
  StepFigures figures;
  std::vector<StepPair> pairs;
};
// The same of a run whose turns have `turn_steps` steps, at least 2, with the pairs of turns that
// are wholly in the window. The first step of a turn does not count: there the last snapshot of the
// turn before is still on its way to the disk.
ckpt::Result<TurnFigures> turn_figures(const std::vector<moetrain::RankEvent>& events,
                                       const StepWindow& window, uint64_t turn_steps);

}  // namespace bench
