// Stragglers: the rank that the others waited for, step by step. Pure: events in, totals out. For
// the report only: no decision depends on it.
//
// For each step a rank reports the time that the step took, and its part in collectives. In
// collectives the rank waits for the slowest rank; outside it does its own work (or gets no CPU).
// So the rank with the most time of its own in a step is the one that the others waited for.
//
// Both times are of the rank's own thread. Jobs of its communication thread (packing and sums of
// sharded experts) are no time of its own: they run beside the step, and a wait for such a job
// counts as time in collectives.
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
  // A rank trains in an epoch of `group` ranks.
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
