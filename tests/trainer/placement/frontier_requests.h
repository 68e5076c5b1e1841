// Placement requests for tests of `frontier`.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

#include "trainer/placement/judge.h"
#include "trainer/placement/policy.h"

namespace moetrain {

// Layers of Zipf loads with shuffled experts.
inline PlacementRequest shuffled_zipf(uint32_t layers, uint32_t experts, uint32_t ranks,
                                      uint32_t slots) {
  PlacementRequest request{.ranks = ranks, .slots_per_rank = slots, .replicas_min = 2};
  std::mt19937 random(5);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    auto& loads = request.loads.emplace_back(experts);
    for (uint32_t e = 0; e < experts; ++e) {
      loads[e] = static_cast<uint64_t>(1e6 / std::pow(e + 1, 0.4 + 0.1 * (layer % 10)));
    }
    for (uint32_t e = experts - 1; e > 0; --e) std::swap(loads[e], loads[random() % (e + 1)]);
  }
  return request;
}

inline Judgement judged(PolicyName policy, const PlacementRequest& request) {
  const auto layers = plan_placement(policy, request);
  EXPECT_TRUE(layers.ok()) << layers.error().message;
  return *judge(*layers, request);
}

}  // namespace moetrain
