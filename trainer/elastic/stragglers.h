// Stragglers: which rank the others waited for, step by step. Pure: events in, totals out. Nothing
// is decided by it.
//
// Of each step a rank tells how long it took and how long it was in collectives. There it waits for
// whoever comes last; outside it has its own work to do (or no CPU to do it with). So the rank with
// the most time of its own in a step is the one that the others waited for.
//
// Both times are of the rank's own thread. Packing and adding up in jobs of its communication
// thread (sharded experts) is no time of its own: beside it that costs the step nothing, and a wait
// for such a job counts as time in collectives.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trainer/elastic/events.h"
#include "trainer/report/report.h"

namespace moetrain {

class Stragglers {
 public:
  // A rank trains in an epoch of so many.
  void begin(uint64_t epoch, uint32_t group);
  // A rank completed a step in this epoch. The step counts when all ranks of the epoch completed
  // it, not if a loss cut it off.
  void add(uint64_t epoch, const EventHeader& at, const StepEvent& step);

  // Ascending by rank; those that took part in no whole step are left out.
  std::vector<report::RankTime> ranks() const;

 private:
  struct Part {
    uint32_t rank = 0;
    double own_ms = 0;
    double waited_ms = 0;
  };
  struct Totals {
    uint64_t steps = 0;
    double own_ms = 0;
    double waited_ms = 0;
    uint64_t slowest = 0;
    double more_ms = 0;
  };
  void count(const std::vector<Part>& parts);

  using StepOfEpoch = std::pair<uint64_t, uint64_t>;
  std::map<uint64_t, uint32_t> groups_;            // ranks, by epoch: the newest, the one before
  std::map<StepOfEpoch, std::vector<Part>> open_;  // of these epochs
  std::map<uint32_t, Totals> totals_;              // by rank
};

}  // namespace moetrain
