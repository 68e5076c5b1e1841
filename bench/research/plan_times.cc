#include "bench/research/plan_times.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <random>

#include "trainer/placement/judge.h"

namespace bench {

using ckpt::Result;
using moetrain::PlacementRequest;
using moetrain::PolicyName;
using nlohmann::json;

namespace {

constexpr int kRepeats = 3;  // the fastest repeat counts: noise only slows

struct Shape {
  uint32_t ranks, experts, layers;
  uint32_t slots_per_rank = 0;  // 0: `slots_asked` of measure()
  uint32_t replicas_min = 2;
  uint32_t ranks_per_node = 1;  // ranks of a node fail together
};
constexpr Shape kShapes[] = {{16, 32, 24}, {64, 32, 24}, {256, 128, 24}, {1024, 256, 64}};
constexpr Shape kNodeShapes[] = {{64, 32, 24, 0, 2, 8},
                                 {64, 32, 24, 2, 2, 8},
                                 {64, 32, 24, 0, 2, 4},
                                 {1024, 256, 64, 0, 2, 8},
                                 {1024, 256, 64, 0, 2, 64}};
// Too few slots to balance the loads, however long a search takes.
constexpr Shape kTightShapes[] = {{3, 3, 24, 2},       {7, 5, 24, 1, 1}, {8, 8, 24, 2, 1},
                                  {8, 16, 24, 4},      {16, 16, 24, 2},  {32, 32, 24, 2, 1},
                                  {64, 32, 24, 1},     {64, 64, 24, 2},  {256, 256, 58, 2},
                                  {256, 256, 58, 1, 1}};

struct Limit {
  double ms = 0;  // for all layers
  std::string name;
};

// Time limit of a plan: our own promise, or for LAER-MoE the time that its paper reports per layer.
std::optional<Limit> limit_of(PolicyName policy, const Shape& shape) {
  if (shape.slots_per_rank != 0 && shape.ranks_per_node == 1) {
    if (policy != PolicyName::kFrontier) return std::nullopt;
    return Limit{100.0 * shape.layers / 24, "promised"};
  }
  const bool small = shape.ranks == 64;
  if (!small && shape.ranks != 1024) return std::nullopt;
  switch (policy) {
    case PolicyName::kEplb:
    case PolicyName::kLazarus:
      return Limit{small ? 5.0 : 1'000.0, "promised"};
    case PolicyName::kFrontier:
      return Limit{small ? 100.0 : 5'000.0, "promised"};
    case PolicyName::kLaer:
      return Limit{(small ? 1.7 : 282.0) * shape.layers, "LAER-MoE's own, the most it reports"};
    default:
      return std::nullopt;
  }
}

Result<json> measure(const Shape& shape, PolicyName policy, uint32_t slots_asked) {
  const uint32_t slots_per_rank = shape.slots_per_rank != 0 ? shape.slots_per_rank : slots_asked;
  PlacementRequest request{.loads = zipf_loads(shape.layers, shape.experts, 1'000'000, 3),
                           .ranks = shape.ranks,
                           .slots_per_rank = slots_per_rank,
                           .replicas_min = shape.replicas_min};
  for (uint32_t rank = 0; shape.ranks_per_node > 1 && rank < shape.ranks; ++rank) {
    request.domain_of_rank.push_back(rank / shape.ranks_per_node);
  }
  double quickest = HUGE_VAL;
  std::vector<moetrain::LayerSlots> layers;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double begin = thread_cpu_ms();
    CKPT_ASSIGN(layers, moetrain::plan_placement(policy, request));
    quickest = std::min(quickest, thread_cpu_ms() - begin);
  }
  CKPT_ASSIGN(const moetrain::Judgement judgement, moetrain::judge_balance(layers, request));
  json entry = {{"ranks", shape.ranks},
                {"nodes", shape.ranks / shape.ranks_per_node},
                {"experts", shape.experts},
                {"layers", shape.layers},
                {"slots_per_rank", slots_per_rank},
                {"policy", moetrain::policy_name(policy)},
                {"cpu_ms", quickest},
                {"cpu_ms_per_layer", quickest / shape.layers},
                {"max_over_mean", judgement.max_over_mean}};
  if (const auto limit = limit_of(policy, shape)) {
    entry["limit_ms"] = limit->ms;
    entry["limit_name"] = limit->name;
    entry["verdict"] = quickest <= limit->ms ? "pass" : "fail";
  }
  return entry;
}

}  // namespace

double thread_cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

std::vector<std::vector<uint64_t>> zipf_loads(uint32_t layers, uint32_t experts, uint64_t tokens,
                                              uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<uint64_t>> all;
  all.reserve(layers);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const double exponent = 0.5 + (layer % 8) / 8.0;
    std::vector<uint64_t>& loads = all.emplace_back(experts);
    for (uint32_t e = 0; e < experts; ++e) {
      loads[e] = static_cast<uint64_t>(static_cast<double>(tokens) / std::pow(e + 1, exponent));
    }
    for (uint32_t e = experts - 1; e > 0; --e) std::swap(loads[e], loads[random() % (e + 1)]);
  }
  return all;
}

Result<json> planning_times(uint32_t slots_per_rank) {
  json entries = json::array();
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.insert(shapes.end(), std::begin(kNodeShapes), std::end(kNodeShapes));
  shapes.insert(shapes.end(), std::begin(kTightShapes), std::end(kTightShapes));
  for (const Shape& shape : shapes) {
    for (const PolicyName policy : moetrain::kPolicies) {
      CKPT_ASSIGN(json entry, measure(shape, policy, slots_per_rank));
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

}  // namespace bench
