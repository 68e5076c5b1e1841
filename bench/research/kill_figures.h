// Costs of losing ranks in a run of moetrain. Pure: events in, figures out.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "formats/base/result.h"
#include "trainer/elastic/events.h"

namespace bench {

struct Kill {
  uint64_t at_ns = 0;           // moetrain::monotonic_ns
  std::vector<uint32_t> ranks;  // processes, by the supervisor's numbering
};

// Consecutive phases of a recovery, in seconds (trainer/elastic/recovery_times.h).
struct KillSplit {
  double detect = 0;      // until the last survivor had detected the loss
  double regroup = 0;     // until all ranks were connected in the next epoch
  double plan = 0;        // until all ranks had agreed on the step and planned the placement
  double migrate = 0;     // until all ranks had their state, migrated or restored
  double first_step = 0;  // until all ranks had completed a step
};

struct KillFigures {
  double step_seconds = 0;  // before the kill: median from one step to the next
  double seconds = 0;       // until every rank of the next epoch had completed a step
  KillSplit split;          // adds up to `seconds`
  // Until every rank had completed its first new step, which is number `completed` + 1.
  double new_step_seconds = 0;
  uint64_t completed = 0;   // the newest step that some rank had completed before the kill
  uint64_t resumed_at = 0;  // where the next epoch began
  uint32_t group = 0;       // number of ranks of the next epoch
  uint32_t effective_replicas = 0;
  int64_t lost_tokens = 0;
  std::set<uint32_t> stale_units;          // restored older than the rest, on any rank
  std::map<uint64_t, uint32_t> loss_bits;  // by step; of a repeated step, the bits of the repeat
  // Number of completed steps that were repeated.
  uint64_t redone() const { return completed > resumed_at ? completed - resumed_at : 0; }
};
// `events`: all events of the run, of all ranks, in any order. kFailedPrecondition if no rank had
// trained before the kill, or if no later group completed a new step.
ckpt::Result<KillFigures> kill_figures(std::vector<moetrain::RankEvent> events, const Kill& kill);

// Largest difference of the two losses of any step, relative to `loss_bits`. Infinite if a step
// is missing in one of the maps, or its losses are not both finite.
double relative_difference(const std::map<uint64_t, uint32_t>& loss_bits,
                           const std::map<uint64_t, uint32_t>& others);

}  // namespace bench
