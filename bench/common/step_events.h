// Figures of a run's steps, from the events of moetrain. Pure: events in, figures out.
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
  double step_seconds = 0;      // mean over the window, including the time between steps
  double stall_seconds = 0;     // stall of the slowest rank by a snapshot: median
  double durable_seconds = 0;   // from begin until a rank knew it was durable: median
  uint64_t snapshot_bytes = 0;  // of all ranks: median over steps; 0: no snapshots
  uint64_t snapshots = 0;       // snapshots that became durable for at least one rank
  uint64_t failures = 0;        // snapshots that failed on a rank, counted per rank
  double busiest_tokens = 0;    // tokens of the busiest rank: mean over steps (ExpertLoad)
  double max_over_mean = 0;     // mean over steps
  moetrain::report::ExpertExchange exchange;  // of the steps in the window
};
// Figures of the window. `events`: all events of one run, of all ranks. Step times are those of
// rank 0, which all ranks meet at every step boundary. kFailedPrecondition if the run did not
// complete the window, or repeated a step.
ckpt::Result<StepFigures> step_figures(const std::vector<moetrain::RankEvent>& events,
                                       const StepWindow& window);

// Bits of a step's loss, which is the same on all ranks. kNotFound if no rank completed the step.
ckpt::Result<uint32_t> loss_bits_of(const std::vector<moetrain::RankEvent>& events, uint64_t step);

// Steps of one run whose turns alternate between no checkpoints and checkpoints
// (--checkpoint-turns): a machine that is slow for a while slows both.
struct StepPair {
  double without_seconds = 0;  // mean duration of a step of the turn without checkpoints
  double with_seconds = 0;     // mean duration of a step of the turn that follows
};
struct TurnFigures {
  StepFigures figures;
  std::vector<StepPair> pairs;
};
// Figures of a run whose turns have `turn_steps` steps, at least 2, with the pairs of turns that
// lie wholly in the window. The first step of a turn does not count: the last snapshot of the turn
// before is still being written.
ckpt::Result<TurnFigures> turn_figures(const std::vector<moetrain::RankEvent>& events,
                                       const StepWindow& window, uint64_t turn_steps);

}  // namespace bench
