// What the loss of ranks cost a run of moetrain. Pure: events in, figures out.
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
  std::vector<uint32_t> ranks;  // processes, as the supervisor counts them
};

// Seconds, one after the other (trainer/elastic/recovery_times.h).
struct KillSplit {
  double detect = 0;      // until the last survivor knew
  double regroup = 0;     // until all were connected in the next epoch
  double plan = 0;        // until all had agreed on the step and planned who holds what
  double migrate = 0;     // until all had their state, moved or restored
  double first_step = 0;  // until all had completed a step
};

struct KillFigures {
  double step_seconds = 0;  // of the run until then: median from one step to the next
  double seconds = 0;       // until every rank of the next epoch had completed a step
  KillSplit split;          // of `seconds`
  // Until all had completed a step that nobody had completed before: where the run was, and one on.
  double new_step_seconds = 0;
  uint64_t completed = 0;   // the newest step that some rank had completed
  uint64_t resumed_at = 0;  // where the next epoch began
  uint32_t group = 0;       // its ranks
  uint32_t effective_replicas = 0;
  int64_t lost_tokens = 0;
  std::set<uint32_t> stale_units;          // came back older than the rest; on any rank
  std::map<uint64_t, uint32_t> loss_bits;  // of all steps; of one that was done again the later
  // Steps that were complete and were done again.
  uint64_t redone() const { return completed > resumed_at ? completed - resumed_at : 0; }
};
// `events`: all of the run, of all ranks, in any order. kFailedPrecondition if nobody had trained
// before, or no group trained on and did one step more than had been done.
ckpt::Result<KillFigures> kill_figures(std::vector<moetrain::RankEvent> events, const Kill& kill);

// The largest difference of the losses of any step, relative to the first one's; of steps that one
// of the two has not done, or that are not finite in both: infinite.
double relative_difference(const std::map<uint64_t, uint32_t>& loss_bits,
                           const std::map<uint64_t, uint32_t>& others);

}  // namespace bench
