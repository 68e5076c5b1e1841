#include "trainer/placement/layer_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/trainer/placement/frontier_requests.h"
#include "trainer/placement/families.h"
#include "trainer/placement/frontier.h"
#include "trainer/placement/judge.h"

namespace moetrain {
namespace {

constexpr int64_t kPlenty = 1'000'000'000;  // unit of work: probes

double max_over_mean_of(const LayerSlots& slots, const std::vector<uint64_t>& loads) {
  const double total = static_cast<double>(std::reduce(loads.begin(), loads.end()));
  return std::ranges::max(rank_loads(slots, loads)) * static_cast<double>(slots.size()) / total;
}

// Results of every way to build and improve a layer; empty if the layer does not fit.
std::vector<LayerSlots> searched_layers(const PlacementRequest& request, const Family& family,
                                        const std::vector<uint64_t>& loads) {
  using enum LayerSearch::Start;
  const std::vector<double> doubles(loads.begin(), loads.end());
  std::mt19937 random(1);
  std::vector<LayerSlots> found;
  LayerSearch search(request, family, doubles);
  const auto improve = [&] {
    int64_t work = 50'000;
    search.improve(work, 1.0);
    found.push_back(search.slots());
    EXPECT_NEAR(search.max_over_mean(), max_over_mean_of(found.back(), loads), 1e-6);
  };
  for (const LayerSearch::Start start : {kMembers, kAllReplicas}) {
    for (const int64_t work : {kPlenty, int64_t{0}}) {  // 0: interrupted at once
      if (!search.build(start, work)) return {};
      improve();
      search.kick(random);
      improve();
      if (search.rebuild(start, random, work)) improve();
    }
  }
  return found;
}

// A family's recovery bound holds for every plan within it, over all layers together. Experts that
// need only one replica are moved like all others.
TEST(LayerSearchTest, FamiliesKeepTheirRecoveryBound) {
  int built = 0;
  for (const uint32_t replicas_min : {1u, 2u}) {
    PlacementRequest whole = shuffled_zipf(3, 20, 12, 4);
    whole.replicas_min = replicas_min;
    for (const RatedFamily& rated : candidate_families(whole, failures_asked(whole))) {
      PlacementRequest request = whole;
      request.loads.clear();
      std::vector<LayerSlots> layers;
      for (const auto& of_layer : whole.loads) {
        const auto found = searched_layers(whole, rated.family, of_layer);
        layers.insert(layers.end(), found.begin(), found.end());
        request.loads.resize(layers.size(), of_layer);
      }
      if (layers.empty()) continue;
      ++built;
      const auto judgement = judge(layers, request);
      ASSERT_TRUE(judgement.ok());
      for (const RecoveryAt& at : judgement->recovery) {
        EXPECT_GE(at.probability, rated.recovery[at.failed - 1] - 1e-12);
      }
    }
  }
  EXPECT_GE(built, 10);
}

// Slots of a domain that other experts have used up do not count.
TEST(LayerSearchTest, DetectsWhetherExpertsFit) {
  const Family blocks{.members = {{0, 1}, {2, 3}}};
  EXPECT_TRUE(fits(blocks, {3, 3, 2, 2}, 5));
  EXPECT_FALSE(fits(blocks, {3, 2, 2, 3}, 5));
  const Family windows{.members = {{0, 1}, {1, 2}}};
  EXPECT_TRUE(fits(windows, {1, 2, 1}, 2));
  EXPECT_FALSE(fits(windows, {2, 2, 2}, 3));
  const Family free{.free_size = 2};
  EXPECT_TRUE(fits(free, {2, 1, 1}, 2));
  EXPECT_FALSE(fits(free, {9, 1, 1}, 3)) << "on one domain they are once each";
  EXPECT_TRUE(fits(free, {0, 0}, 0));
}

// All placements of one layer up to renaming ranks, each expert on at least replicas_min ranks.
class Exhaustive {
 public:
  explicit Exhaustive(const PlacementRequest& request)
      : request_(request), total_(std::reduce(request.loads[0].begin(), request.loads[0].end())) {
    LayerSlots slots;
    fill_rank(slots, {}, 0);
  }

  double least_max_over_mean() const { return best_; }

 private:
  // Ranks in ascending order of their experts, experts of a rank in ascending order.
  void fill_rank(LayerSlots& slots, std::vector<uint32_t> rank, uint32_t from) {
    if (rank.size() < request_.slots_per_rank) {
      for (uint32_t expert = from; expert < request_.experts(); ++expert) {
        rank.push_back(expert);
        fill_rank(slots, rank, expert);
        rank.pop_back();
      }
      return;
    }
    if (!slots.empty() && rank < slots.back()) return;
    slots.push_back(std::move(rank));
    if (slots.size() < request_.ranks) {
      fill_rank(slots, {}, 0);
    } else {
      rate(slots);
    }
    slots.pop_back();
  }

  void rate(const LayerSlots& slots) {
    for (uint32_t expert = 0; expert < request_.experts(); ++expert) {
      const auto holders = std::ranges::count_if(
          slots, [&](const auto& rank) { return std::ranges::find(rank, expert) != rank.end(); });
      if (holders < request_.replicas_min) return;
    }
    const double busiest = std::ranges::max(rank_loads(slots, request_.loads[0]));
    best_ = std::min(best_, busiest * request_.ranks / static_cast<double>(total_));
  }

  const PlacementRequest& request_;
  const uint64_t total_;
  double best_ = HUGE_VAL;
};

// If only balance is wanted, no placement of a small layer is better by more than a sixth; an
// imbalance of up to 1.03 is always accepted.
TEST(LayerSearchTest, BalancesSmallLayersNearOptimally) {
  const uint32_t seed = 17;
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    PlacementRequest request{.ranks = 2 + static_cast<uint32_t>(random() % 3),
                             .slots_per_rank = 2 + static_cast<uint32_t>(random() % 2)};
    request.replicas_min = 1 + random() % 2;
    request.recovery_wanted = {{1, 0}};
    const uint32_t experts =
        2 + random() % (std::min(5u, request.slots() / request.replicas_min) - 1);
    auto& loads = request.loads.emplace_back(experts);
    for (uint64_t& load : loads)
      load = 1 + random() % (round % 2 == 0 ? 100 : 9) * (random() % 100);
    const double best = Exhaustive(request).least_max_over_mean();
    EXPECT_LE(judged(PolicyName::kFrontier, request).max_over_mean, 7.0 / 6 * std::max(best, 1.03))
        << "seed " << seed << ", round " << round;
  }
}

// The bound at which a search may stop never exceeds the optimum.
TEST(LayerSearchTest, SearchBoundNeverExceedsOptimum) {
  const uint32_t seed = 23;
  std::mt19937 random(seed);
  int reached = 0;
  for (int round = 0; round < 60; ++round) {
    PlacementRequest request{.ranks = 2 + static_cast<uint32_t>(random() % 3),
                             .slots_per_rank = 1 + static_cast<uint32_t>(random() % 3)};
    request.replicas_min = 1 + random() % 2;
    const uint32_t experts_max = std::min(5u, request.slots() / request.replicas_min);
    // Every other round has only as many slots as needed, if possible.
    auto& loads =
        request.loads.emplace_back(round % 2 == 0 ? experts_max : 1 + random() % experts_max);
    for (uint64_t& load : loads) load = 1 + random() % 100;
    const std::vector<double> doubles(loads.begin(), loads.end());
    const Family family{.free_size = request.replicas_min};
    LayerSearch search(request, family, doubles);
    const double best = Exhaustive(request).least_max_over_mean();
    EXPECT_LE(search.least_max_over_mean(), best + 1e-9) << "seed " << seed << ", round " << round;
    if (search.least_max_over_mean() > best - 1e-9) ++reached;
  }
  EXPECT_GT(reached, 15) << "where it never is the best, nothing would stop at it";
}

// Work done between two searches is charged to the second search.
TEST(LayerSearchTest, RestartsAreChargedAsWork) {
  const PlacementRequest request = shuffled_zipf(1, 128, 256, 1);
  const std::vector<double> loads(request.loads[0].begin(), request.loads[0].end());
  const Family pairs = candidate_families(request, {1}).front().family;
  LayerSearch search(request, pairs, loads);
  int64_t left = kPlenty;
  search.improve(left, HUGE_VAL);
  EXPECT_GE(kPlenty - left, 128 * 256 / 8) << "counts of each expert on each rank are made";
  ASSERT_TRUE(search.build(LayerSearch::Start::kMembers, kPlenty));
  std::mt19937 random(1);
  const auto taken = [&](auto between) {
    int64_t work = kPlenty;
    search.improve(work, HUGE_VAL);  // only charges the work so far
    between();
    work = kPlenty;
    search.improve(work, HUGE_VAL);
    return kPlenty - work;
  };
  EXPECT_EQ(taken([] {}), 0);
  const LayerSlots slots = search.slots();
  // Two replicas of each of 128 experts are placed.
  EXPECT_GE(taken([&] { search.rebuild(LayerSearch::Start::kMembers, random, kPlenty); }),
            128 * 2 * 4);
  EXPECT_GE(taken([&] { search.adopt(slots); }), 256);
  EXPECT_GT(taken([&] { search.kick(random); }), 4);
}

// Ranks have one slot and the family has hardly any spare room, so build() checks for rank after
// rank whether the other experts still fit. It must stop at its limit of work.
TEST(LayerSearchTest, BuildStopsAtWorkLimit) {
  constexpr uint32_t kRanks = 2048;
  constexpr uint32_t kExperts = 512;
  PlacementRequest request = shuffled_zipf(1, kExperts, kRanks, 1);
  request.replicas_min = 3;
  const std::vector<double> loads(request.loads[0].begin(), request.loads[0].end());
  const auto families = candidate_families(request, {1});
  const auto tight = std::ranges::find_if(families, [](const RatedFamily& rated) {
    const size_t members = rated.family.members.size();
    return members > kExperts && members < kExperts + kExperts / 8;
  });
  ASSERT_NE(tight, families.end());
  const auto probes_of = [&](int64_t work) {
    LayerSearch search(request, tight->family, loads);
    int64_t left = 0;
    search.improve(left, HUGE_VAL);  // forgets the construction
    EXPECT_TRUE(search.build(LayerSearch::Start::kAllReplicas, work));
    for (const auto& slots : search.slots()) EXPECT_EQ(slots.size(), 1u);
    left = kPlenty;
    search.improve(left, HUGE_VAL);
    return kPlenty - left;
  };
  const int64_t least = probes_of(0);
  EXPECT_GT(probes_of(kPlenty), 20 * least);
  // An expert that was begun is completed: its ranks are sorted, and one rank is tried.
  constexpr int64_t kWork = 2'000'000;
  EXPECT_LE(probes_of(kWork), kWork + 2 * least);
  EXPECT_GE(probes_of(kWork), kWork);
}

}  // namespace
}  // namespace moetrain
