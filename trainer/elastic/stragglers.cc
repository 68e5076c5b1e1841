#include "trainer/elastic/stragglers.h"

#include <algorithm>
#include <numeric>

namespace moetrain {

void Stragglers::begin(uint64_t epoch, uint32_t group) {
  groups_[epoch] = group;
  // Events of different ranks interleave: the previous epoch's last steps may still arrive.
  const uint64_t newest = groups_.rbegin()->first;
  const auto is_over = [newest](uint64_t other) { return other + 1 < newest; };
  std::erase_if(groups_, [&](const auto& known) { return is_over(known.first); });
  std::erase_if(open_, [&](const auto& step) { return is_over(step.first.first); });
}

void Stragglers::add(uint64_t epoch, const EventHeader& at, const StepEvent& step) {
  // A step completed after a loss, outside of a step boundary, has no time of its own.
  const auto group = groups_.find(epoch);
  if (group == groups_.end() || step.ms <= 0) return;
  std::vector<Part>& parts = open_[{epoch, at.step}];
  parts.push_back({.rank = at.rank,
                   .own_ms = std::max(step.ms - step.stall_ms - step.waited_ms, 0.0),
                   .waited_ms = step.waited_ms});
  if (parts.size() < group->second) return;
  count(parts);
  open_.erase({epoch, at.step});
}

void Stragglers::count(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    Totals& totals = totals_[part.rank];
    ++totals.steps;
    totals.own_ms += part.own_ms;
    totals.waited_ms += part.waited_ms;
  }
  if (parts.size() < 2) return;  // no rank waits
  // Ties go to the lowest rank, regardless of the order of events.
  const Part& slowest = *std::ranges::max_element(parts, [](const Part& a, const Part& b) {
    return a.own_ms != b.own_ms ? a.own_ms < b.own_ms : a.rank > b.rank;
  });
  const double all_ms =
      std::accumulate(parts.begin(), parts.end(), 0.0,
                      [](double sum, const Part& part) { return sum + part.own_ms; });
  const double others_ms = (all_ms - slowest.own_ms) / static_cast<double>(parts.size() - 1);
  Totals& totals = totals_[slowest.rank];
  ++totals.slowest;
  totals.more_ms += slowest.own_ms - others_ms;
}

std::vector<report::RankTime> Stragglers::ranks() const {
  std::vector<report::RankTime> ranks;
  ranks.reserve(totals_.size());
  for (const auto& [rank, totals] : totals_) {
    const auto steps = static_cast<double>(totals.steps);
    ranks.push_back({.rank = rank,
                     .steps = totals.steps,
                     .own_ms = totals.own_ms / steps,
                     .waited_ms = totals.waited_ms / steps,
                     .slowest = totals.slowest,
                     .more_ms = totals.slowest == 0
                                    ? 0
                                    : totals.more_ms / static_cast<double>(totals.slowest)});
  }
  return ranks;
}

}  // namespace moetrain
