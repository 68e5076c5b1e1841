// StallTotals: the stall of each snapshot of a run, from the events of all ranks. Pure.
//
// Ranks wait for each other, so a snapshot stalls training as long as its slowest rank. A rank
// reports its stall twice, by the same clock: with the step after the snapshot, and with the end of
// the snapshot. The step includes dropped and only planned snapshots; the last snapshot has no step
// after it. So the longer of the two counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace moetrain {

class StallTotals {
 public:
  // A rank trains in this epoch. `survivors_continue`: it keeps its state, so no step is redone.
  void trains(uint64_t epoch, bool survivors_continue) {
    if (!survivors_continue) histories_.insert(epoch);
  }
  // A rank has completed the step.
  void stepped(uint32_t rank, uint64_t epoch, uint64_t step, double stall_ms) {
    if (step > 0 && stall_ms > 0) ranks_of(epoch, step - 1)[rank].of_step_ms += stall_ms;
  }
  // A rank's part of a snapshot of the step is durable, or failed.
  void settled(uint32_t rank, uint64_t epoch, uint64_t step, double stall_ms) {
    if (stall_ms > 0) ranks_of(epoch, step)[rank].of_snapshots_ms += stall_ms;
  }

  // The stall by snapshots of the step that were taken in this epoch: of the slowest rank.
  double of(uint64_t epoch, uint64_t step) const {
    const auto found = snapshots_.find({history_of(epoch), step});
    return found == snapshots_.end() ? 0 : slowest(found->second);
  }
  double total_ms() const {
    double total = 0;
    for (const auto& [key, ranks] : snapshots_) total += slowest(ranks);
    return total;
  }
  double longest_ms() const {
    double longest = 0;
    for (const auto& [key, ranks] : snapshots_) longest = std::max(longest, slowest(ranks));
    return longest;
  }

 private:
  struct RankStall {
    double of_step_ms = 0;
    double of_snapshots_ms = 0;  // of all attempts
  };
  using Ranks = std::map<uint32_t, RankStall>;

  // Epochs in which survivors continue share the steps of the epoch that began the history.
  uint64_t history_of(uint64_t epoch) const {
    const auto after = histories_.upper_bound(epoch);
    return after == histories_.begin() ? 0 : *std::prev(after);
  }
  Ranks& ranks_of(uint64_t epoch, uint64_t step) { return snapshots_[{history_of(epoch), step}]; }
  static double slowest(const Ranks& ranks) {
    double ms = 0;
    for (const auto& [rank, stall] : ranks) {
      ms = std::max({ms, stall.of_step_ms, stall.of_snapshots_ms});
    }
    return ms;
  }

  std::set<uint64_t> histories_;                              // the first epoch of each
  std::map<std::pair<uint64_t, uint64_t>, Ranks> snapshots_;  // by history and step
};

}  // namespace moetrain
