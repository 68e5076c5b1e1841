#include "trainer/placement/frontier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "trainer/placement/families.h"
#include "trainer/placement/judge.h"

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Layers of Zipf loads, experts shuffled.
PlacementRequest zipf_request(uint32_t layers, uint32_t experts, uint32_t ranks, uint32_t slots) {
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

Judgement judged(PolicyName policy, const PlacementRequest& request) {
  const auto layers = plan_placement(policy, request);
  EXPECT_TRUE(layers.ok()) << layers.error().message;
  return *judge(*layers, request);
}

TEST(FrontierTest, IsAsSafeAsLazarusAndBalanced) {
  const PlacementRequest request = zipf_request(24, 32, 16, 6);
  const Judgement ours = judged(PolicyName::kFrontier, request);
  const Judgement overlap = judged(PolicyName::kLazarus, request);
  for (const uint32_t failed : {1u, 2u, 4u}) {
    EXPECT_GE(ours.recovery[failed - 1].probability,
              overlap.recovery[failed - 1].probability - 1e-12)
        << failed;
  }
  EXPECT_LT(ours.max_over_mean, 1.10);
  EXPECT_LT(ours.max_over_mean_worst, 1.25);
  EXPECT_GT(overlap.max_over_mean, ours.max_over_mean + 0.1);
}

// Any shape: a few ranks or many, with nodes or without, whole groups of experts or not.
TEST(FrontierTest, IsAsSafeAsLazarusWhateverIsAsked) {
  const uint32_t seed = 11;
  std::mt19937 random(seed);
  int compared = 0;
  for (int round = 0; round < 60; ++round) {
    PlacementRequest request{.ranks = 5 + static_cast<uint32_t>(random() % 11),
                             .slots_per_rank = 2 + static_cast<uint32_t>(random() % 4),
                             .replicas_min = 1 + static_cast<uint32_t>(random() % 3)};
    const uint32_t experts_max = std::min(40u, request.slots() / request.replicas_min);
    request.loads.assign(1 + random() % 5, std::vector<uint64_t>(2 + random() % (experts_max - 1)));
    for (auto& loads : request.loads) {
      for (uint64_t& load : loads) load = 1 + random() % (random() % 4 == 0 ? 9'000 : 300);
    }
    if (round % 4 == 0) {
      const uint32_t domains = 2 + random() % (request.ranks - 1);
      for (uint32_t rank = 0; rank < request.ranks; ++rank) {
        request.domain_of_rank.push_back(rank < domains ? rank : random() % domains);
      }
    }
    request.replicas_min = replicas_possible(request);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const Judgement ours = judged(PolicyName::kFrontier, request);
    const Judgement overlap = judged(PolicyName::kLazarus, request);
    for (const uint32_t failed : failures_asked(request)) {
      ++compared;
      EXPECT_GE(ours.recovery[failed - 1].probability,
                overlap.recovery[failed - 1].probability - 1e-9)
          << failed << " failures";
    }
  }
  EXPECT_GT(compared, 120);
}

// The least maximum over mean that the number of slots allows, every expert having at least so
// many.
double balance_bound(const PlacementRequest& request, const std::vector<uint64_t>& loads,
                     uint32_t replicas_min) {
  const double total = static_cast<double>(std::reduce(loads.begin(), loads.end()));
  double least = 1;
  double most = request.ranks;
  for (int step = 0; step < 50; ++step) {
    const double balance = (least + most) / 2;
    double slots = 0;
    for (const uint64_t load : loads) {
      const double share = balance * total / request.ranks;
      slots += std::max<double>(replicas_min, std::ceil(static_cast<double>(load) / share));
    }
    (slots <= request.slots() ? most : least) = balance;
  }
  return most;
}

// A few experts that get half of the tokens or nearly all, on top of Zipf loads.
std::vector<uint64_t> hot_loads(uint32_t experts, uint32_t hot, std::mt19937& random) {
  std::vector<uint64_t> loads(experts);
  const double others = 2e6 / hot / static_cast<double>(1u << (random() % 10));
  for (uint32_t e = 0; e < experts; ++e) {
    loads[e] = e < hot ? 1'000'000 + random() % 1'000'000
                       : 1 + static_cast<uint64_t>(others / (e - hot + 1));
  }
  std::shuffle(loads.begin(), loads.end(), random);
  return loads;
}

// Replicas of hot experts need slots on ranks that the other experts would fill up.
TEST(FrontierTest, BalancesWhatNeedsManyReplicas) {
  struct Shape {
    uint32_t ranks, slots_per_rank, experts;
  };
  for (const Shape& shape : {Shape{16, 6, 32}, Shape{64, 4, 64}, Shape{10, 6, 16}}) {
    PlacementRequest request{
        .ranks = shape.ranks, .slots_per_rank = shape.slots_per_rank, .replicas_min = 2};
    const uint32_t seed = 3;
    std::mt19937 random(seed);
    request.loads.reserve(16);
    for (uint32_t layer = 0; layer < 16; ++layer) {
      request.loads.push_back(hot_loads(shape.experts, 1 + layer % 4, random));
    }
    const Judgement judgement = judged(PolicyName::kFrontier, request);
    for (uint32_t layer = 0; layer < 16; ++layer) {
      const LayerJudgement& of_layer = judgement.layers[layer];
      const double bound = balance_bound(request, request.loads[layer], of_layer.domains_min);
      EXPECT_LE(of_layer.max_over_mean, 1.25 * bound)
          << shape.ranks << " ranks, seed " << seed << ", layer " << layer;
    }
  }
}

// Every placement of one layer up to a renaming of ranks, each expert on replicas_min of them.
class Exhaustive {
 public:
  explicit Exhaustive(const PlacementRequest& request)
      : request_(request), total_(std::reduce(request.loads[0].begin(), request.loads[0].end())) {
    LayerSlots slots;
    fill_rank(slots, {}, 0);
  }

  double least_max_over_mean() const { return best_; }

 private:
  // Ranks in ascending order of their contents, contents in ascending order.
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

// Where balance alone is wanted, no placement of a small layer is better by more than a sixth, or
// than what the search puts up with.
TEST(FrontierTest, BalancesSmallLayersAsWellAsAnyPlacement) {
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

// Thousands of replicas of one expert, of which each move changes all shares.
TEST(FrontierTest, PlansFewExpertsInManySlots) {
  PlacementRequest request{
      .loads = {{3, 1}, {1, 1}}, .ranks = 512, .slots_per_rank = 64, .replicas_min = 2};
  const Judgement judgement = judged(PolicyName::kFrontier, request);
  EXPECT_LT(judgement.max_over_mean_worst, 1.02);
  EXPECT_EQ(judgement.recovery[3].probability, 1);
}

TEST(FrontierTest, ReachesWhatIsWantedOrSaysWhatItCan) {
  PlacementRequest request = zipf_request(4, 32, 16, 6);
  request.recovery_wanted = {{2, 0.98}, {4, 0.85}};
  const Judgement safe = judged(PolicyName::kFrontier, request);
  EXPECT_GE(safe.recovery[1].probability, 0.98);
  EXPECT_GE(safe.recovery[3].probability, 0.85);
  request.recovery_wanted = {{1, 0}};
  const Judgement free = judged(PolicyName::kFrontier, request);
  EXPECT_LT(free.max_over_mean, safe.max_over_mean + 0.005);
  EXPECT_GE(free.layers[0].domains_min, 2u);
  request.recovery_wanted = {{8, 0.99}};
  const auto impossible = plan_placement(PolicyName::kFrontier, request);
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_THAT(impossible.error().message, HasSubstr("8 failures: 0.9900 wanted, at most 0."));
}

TEST(FrontierTest, CountsLostNodesNotRanks) {
  PlacementRequest request = zipf_request(6, 16, 16, 4);
  for (uint32_t rank = 0; rank < 16; ++rank) request.domain_of_rank.push_back(rank / 2);
  const Judgement ours = judged(PolicyName::kFrontier, request);
  ASSERT_EQ(ours.recovery.size(), 7u);
  EXPECT_EQ(ours.recovery[0].probability, 1) << "any node may go";
  EXPECT_GE(ours.recovery[1].probability,
            judged(PolicyName::kLazarus, request).recovery[1].probability - 1e-12);
  EXPECT_LT(ours.max_over_mean, 1.15);
}

TEST(FrontierTest, PointsTradeBalanceForRecovery) {
  const PlacementRequest request = zipf_request(3, 32, 16, 6);
  const auto points = frontier_points(request);
  ASSERT_TRUE(points.ok()) << points.error().message;
  ASSERT_GE(points->size(), 2u);
  for (size_t i = 1; i < points->size(); ++i) {
    const FrontierPoint& before = (*points)[i - 1];
    const FrontierPoint& point = (*points)[i];
    EXPECT_GE(point.max_over_mean, before.max_over_mean);
    EXPECT_GT(point.recovery[0] + point.recovery[1] + point.recovery[3],
              before.recovery[0] + before.recovery[1] + before.recovery[3]);
  }
}

double max_over_mean_of(const LayerSlots& slots, const std::vector<uint64_t>& loads) {
  const double total = static_cast<double>(std::reduce(loads.begin(), loads.end()));
  return std::ranges::max(rank_loads(slots, loads)) * static_cast<double>(slots.size()) / total;
}

// However a layer was built and moved about; none if it does not fit.
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
    if (!search.build(start)) return {};
    improve();
    search.kick(random);
    improve();
    if (search.rebuild(start, random)) improve();
  }
  return found;
}

// What a family promises holds of every plan within it, for all layers together.
TEST(FrontierTest, FamiliesKeepTheirPromise) {
  const PlacementRequest whole = zipf_request(3, 20, 12, 4);
  int built = 0;
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
  EXPECT_GE(built, 5);
}

// Room of a domain that the others have used up does not count.
TEST(FrontierTest, KnowsWhatFits) {
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

TEST(FrontierTest, AsksForFailuresThatCanBe) {
  PlacementRequest request = zipf_request(1, 2, 3, 2);
  EXPECT_THAT(failures_asked(request), ElementsAre(1, 2));
  request.failures = 2;
  EXPECT_THAT(failures_asked(request), ElementsAre(2));
}

TEST(JudgeTest, SaysWhatAPlacementIsWorth) {
  PlacementRequest request{.loads = {{60, 20, 20}}, .ranks = 3, .slots_per_rank = 2};
  request.current = {{{0, 1}, {0, 2}, {}}};
  const std::vector<LayerSlots> layers = {{{0, 1}, {2, 0}, {0, 0}}};
  const auto judgement = judge(layers, request);
  ASSERT_TRUE(judgement.ok()) << judgement.error().message;
  EXPECT_THAT(judgement->layers[0].replicas, ElementsAre(4, 1, 1));
  EXPECT_THAT(judgement->layers[0].rank_loads, ElementsAre(35, 35, 30));
  EXPECT_NEAR(judgement->max_over_mean, 35 / (100.0 / 3), 1e-12);
  EXPECT_EQ(judgement->layers[0].domains_min, 1u);
  EXPECT_EQ(judgement->replicas_to_move, 1u) << "expert 0 to rank 2, once";
  EXPECT_NEAR(judgement->recovery[0].probability, 1.0 / 3, 1e-12);
  EXPECT_EQ(judgement->recovery[1].probability, 0);
  EXPECT_THAT(judge({{{0, 1}, {2, 0}}}, request).error().message, HasSubstr("2 ranks, not 3"));
  EXPECT_THAT(judge({{{0, 1}, {0}, {0}}}, request).error().message, HasSubstr("expert 2"));
}

}  // namespace
}  // namespace moetrain
