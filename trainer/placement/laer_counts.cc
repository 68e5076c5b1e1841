#include "trainer/placement/laer_counts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace moetrain {

namespace {

// Raises counts by load per replica until all `slots` are used. step(count) says by how many
// replicas the count of an expert is raised; 0: never again. An expert whose raise does not fit
// keeps its count.
template <typename Step>
void raise(const std::vector<uint64_t>& loads, uint32_t slots, const Step& step,
           std::vector<uint32_t>& counts) {
  using Heavy = std::pair<double, int64_t>;  // load per replica, -expert
  std::vector<Heavy> heavies;
  heavies.reserve(loads.size());
  for (size_t e = 0; e < loads.size(); ++e) {
    heavies.emplace_back(static_cast<double>(loads[e]) / counts[e], -static_cast<int64_t>(e));
  }
  std::priority_queue heaviest(std::less<Heavy>(), std::move(heavies));
  uint32_t left = slots - std::accumulate(counts.begin(), counts.end(), 0u);
  while (left > 0 && !heaviest.empty()) {
    const auto expert = static_cast<size_t>(-heaviest.top().second);
    heaviest.pop();
    const uint32_t more = step(counts[expert]);
    if (more == 0 || more > left) continue;
    counts[expert] += more;
    left -= more;
    heaviest.emplace(static_cast<double>(loads[expert]) / counts[expert],
                     -static_cast<int64_t>(expert));
  }
}

// The fewest replicas with at most `share` load each.
uint32_t replicas_for(uint64_t load, double share, uint32_t replicas_max) {
  const auto tokens = static_cast<double>(load);
  auto count = static_cast<uint32_t>(
      std::clamp(std::ceil(tokens / share), 1.0, static_cast<double>(replicas_max)));
  // The quotients that raise() compares decide, not the rounding of this one.
  while (count > 1 && tokens / (count - 1) <= share) --count;
  while (count < replicas_max && tokens / count > share) ++count;
  return count;
}

}  // namespace

std::vector<uint32_t> even_counts(uint32_t slots, uint32_t experts) {
  std::vector<uint32_t> counts(experts, slots / experts);
  for (uint32_t e = 0; e < slots % experts; ++e) ++counts[e];
  return counts;
}

std::vector<uint32_t> counts_by_load(const std::vector<uint64_t>& loads, uint32_t slots,
                                     uint32_t replicas_max) {
  const auto experts = static_cast<uint32_t>(loads.size());
  std::vector<uint32_t> counts(experts, 1);
  const uint64_t all = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  if (all > 0 && slots > experts) {
    // raise() lowers every expert's load per replica to this share before it goes below it. The
    // counts fit into `slots`: an expert's count is less than load / share + 1.
    const double share = static_cast<double>(all) / (slots - experts);
    for (uint32_t e = 0; e < experts; ++e) counts[e] = replicas_for(loads[e], share, replicas_max);
  }
  raise(
      loads, slots, [&](uint32_t count) { return count < replicas_max ? 1u : 0u; }, counts);
  return counts;
}

std::vector<uint32_t> counts_by_rounds(const std::vector<uint64_t>& loads, uint32_t slots,
                                       uint32_t nodes, uint32_t first, uint32_t replicas_max) {
  std::vector<uint32_t> counts(loads.size(), first);
  const auto by_round = [&](uint32_t count) {
    const uint32_t more = count < nodes ? 1 : nodes;
    return count + more <= replicas_max ? more : 0;
  };
  raise(loads, slots, by_round, counts);
  raise(
      loads, slots, [&](uint32_t count) { return count < replicas_max ? 1u : 0u; }, counts);
  return counts;
}

}  // namespace moetrain
