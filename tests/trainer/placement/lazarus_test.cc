#include "trainer/placement/lazarus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "trainer/placement/allocation.h"
#include "trainer/placement/recovery.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

std::vector<uint32_t> replica_counts(const LayerSlots& slots, uint32_t experts) {
  std::vector<uint32_t> counts(experts);
  for (const auto& rank : slots) {
    for (const uint32_t expert : rank) ++counts.at(expert);
  }
  return counts;
}

std::vector<uint64_t> survivors(const LayerSlots& slots, uint32_t experts, uint32_t ranks) {
  return surviving_sets(holder_masks(slots, experts), ranks);
}

// All placements of these replica counts up to renaming ranks: ranks in ascending order of their
// contents.
class BruteForce {
 public:
  BruteForce(std::vector<uint32_t> replicas, uint32_t ranks, uint32_t slots)
      : left_(std::move(replicas)), ranks_(ranks), slots_(slots) {
    contents({}, 0);
    place(0);
  }
  // Survived sets of 0, 1, ... lost ranks: the lexicographic maximum over all placements.
  const std::vector<uint64_t>& best() const { return best_; }
  // Largest number of survived sets of `failures` lost ranks over all placements.
  uint64_t most(uint32_t failures) const { return most_[failures]; }

 private:
  void contents(std::vector<uint32_t> rank, uint32_t from) {
    if (rank.size() == slots_) return all_.push_back(rank);
    for (uint32_t expert = from; expert < left_.size(); ++expert) {
      rank.push_back(expert);
      contents(rank, expert);
      rank.pop_back();
    }
  }

  void place(size_t from) {
    if (placed_.size() == ranks_) {
      const auto survived = survivors(placed_, static_cast<uint32_t>(left_.size()), ranks_);
      best_ = std::max(best_, survived);
      most_.resize(survived.size());
      for (size_t k = 0; k < most_.size(); ++k) most_[k] = std::max(most_[k], survived[k]);
      return;
    }
    for (size_t i = from; i < all_.size(); ++i) {
      std::map<uint32_t, uint32_t> used;
      for (const uint32_t expert : all_[i]) ++used[expert];
      const bool fits = std::all_of(used.begin(), used.end(), [&](const auto& use) {
        return use.second <= left_[use.first];
      });
      if (!fits) continue;
      for (const uint32_t expert : all_[i]) --left_[expert];
      placed_.push_back(all_[i]);
      place(i);
      placed_.pop_back();
      for (const uint32_t expert : all_[i]) ++left_[expert];
    }
  }

  std::vector<uint32_t> left_;
  const uint32_t ranks_;
  const uint32_t slots_;
  std::vector<std::vector<uint32_t>> all_;
  LayerSlots placed_;
  std::vector<uint64_t> best_;
  std::vector<uint64_t> most_;
};

// Checks that the placement is optimal for every replicas_min, which must not change the optimum.
void expect_optimal(const std::vector<uint32_t>& replicas, uint32_t ranks, uint32_t slots) {
  const auto experts = static_cast<uint32_t>(replicas.size());
  const BruteForce brute_force(replicas, ranks, slots);
  for (uint32_t least = 1; least <= std::min(ranks, replicas.front()); ++least) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << slots << " slots, replicas "
                                    << testing::PrintToString(replicas) << ", at least " << least);
    LazarusOptions options{.ranks = ranks, .slots_per_rank = slots, .replicas_min = least};
    const LayerSlots placed = place_replicas(replicas, options);
    EXPECT_EQ(replica_counts(placed, experts), replicas);
    EXPECT_EQ(survivors(placed, experts, ranks), brute_force.best());
    // If no placement is best for every number of failures, it is best for the requested number.
    for (options.failures = 1; options.failures < ranks; ++options.failures) {
      EXPECT_EQ(survivors(place_replicas(replicas, options), experts, ranks)[options.failures],
                brute_force.most(options.failures))
          << options.failures;
    }
  }
}

// Visits the ascending counts of `experts` experts with sum `total`, each at least `least`.
void each_count(uint32_t experts, uint32_t total, uint32_t least, std::vector<uint32_t> replicas,
                const std::function<void(const std::vector<uint32_t>&)>& visit) {
  if (experts == 1) {
    replicas.push_back(total);
    return visit(replicas);
  }
  for (uint32_t r = least; r * experts <= total; ++r) {
    replicas.push_back(r);
    each_count(experts - 1, total - r, r, replicas, visit);
    replicas.pop_back();
  }
}

TEST(LazarusTest, ReachesTheOptimumOfEveryTinyInstance) {
  int instances = 0;
  for (uint32_t ranks = 2; ranks <= 5; ++ranks) {
    for (uint32_t slots = 1; slots <= 3; ++slots) {
      for (uint32_t experts = 1; experts <= 5 && experts <= ranks * slots; ++experts) {
        each_count(experts, ranks * slots, 1, {}, [&](const std::vector<uint32_t>& replicas) {
          ++instances;
          expect_optimal(replicas, ranks, slots);
        });
      }
    }
  }
  EXPECT_GT(instances, 150);
}

// A domain of several ranks is equivalent to one rank with all their slots.
TEST(LazarusTest, ReachesTheOptimumOfTinyDomains) {
  struct Shape {
    uint32_t domains, ranks_each, slots;
  };
  int instances = 0;
  for (const Shape& shape :
       {Shape{2, 2, 1}, Shape{3, 2, 1}, Shape{4, 2, 1}, Shape{5, 2, 1}, Shape{3, 3, 1}}) {
    const uint32_t of_domain = shape.ranks_each * shape.slots;
    const uint32_t ranks = shape.domains * shape.ranks_each;
    LazarusOptions options{.ranks = ranks, .slots_per_rank = shape.slots};
    // Neighbouring ranks are in different domains.
    for (uint32_t r = 0; r < ranks; ++r) options.domain_of_rank.push_back(r % shape.domains);
    for (uint32_t experts = 1; experts <= 5 && experts <= ranks * shape.slots; ++experts) {
      each_count(experts, ranks * shape.slots, 1, {}, [&](const std::vector<uint32_t>& replicas) {
        ++instances;
        const BruteForce brute_force(replicas, shape.domains, of_domain);
        const LayerSlots placed = place_replicas(replicas, options);
        EXPECT_EQ(replica_counts(placed, experts), replicas);
        EXPECT_EQ(
            surviving_sets(holder_masks(placed, experts, options.domain_of_rank), shape.domains),
            brute_force.best())
            << shape.domains << " domains, replicas " << testing::PrintToString(replicas);
      });
    }
  }
  EXPECT_GT(instances, 60);
}

TEST(LazarusTest, KeepsEveryExpertOnDistinctRanks) {
  const uint32_t seed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    const uint32_t ranks = 2 + random() % 9;
    const uint32_t slots = 1 + random() % 6;
    const uint32_t least = 1 + random() % 3;
    std::vector<uint64_t> loads(1 + random() % (std::max(1u, ranks * slots / least)));
    if (loads.size() * least > ranks * slots) continue;
    for (uint64_t& load : loads) load = random() % 1000;
    const auto experts = static_cast<uint32_t>(loads.size());
    const LazarusOptions options{ranks, slots, least};
    const auto placed = lazarus_layer(loads, options);
    ASSERT_TRUE(placed.ok()) << placed.error().message;
    EXPECT_EQ(*lazarus_layer(loads, options), *placed) << "the same loads, the same placement";
    EXPECT_EQ(replica_counts(*placed, experts), *allocate_replicas(loads, ranks * slots, least));
    for (const auto& rank : *placed) EXPECT_EQ(rank.size(), slots);
    for (const auto& held_by : holders(*placed, experts)) {
      EXPECT_GE(held_by.size(), std::min(least, ranks)) << "round " << round;
    }
  }
}

// Smallest number of distinct domains over all experts.
uint32_t fewest_domains(const LayerSlots& slots, uint32_t experts, const LazarusOptions& options) {
  std::vector<std::vector<bool>> held(experts, std::vector<bool>(options.domains()));
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    for (const uint32_t expert : slots[rank]) held[expert][options.domain(rank)] = true;
  }
  uint32_t fewest = UINT32_MAX;
  for (const auto& domains : held) {
    fewest = std::min(fewest, static_cast<uint32_t>(std::ranges::count(domains, true)));
  }
  return fewest;
}

// replicas_min is guaranteed whatever the search does: it trades only replicas above that minimum.
TEST(LazarusTest, KeepsReplicasMinInRandomInstances) {
  const uint32_t seed = 6;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int in_domains = 0;
  for (int round = 0; round < 100'000; ++round) {
    const uint32_t ranks = 2 + random() % 11;
    // The search takes most of the time; it runs in 4,000 of the rounds.
    LazarusOptions options{.ranks = ranks, .search = round % 25 == 0};
    options.slots_per_rank = 1 + random() % 6;
    options.replicas_min = 1 + random() % 4;
    PlacementRequest request{.ranks = ranks,
                             .slots_per_rank = options.slots_per_rank,
                             .replicas_min = options.replicas_min};
    const uint32_t most = std::max(1u, request.slots() / options.replicas_min);
    request.loads = {std::vector<uint64_t>(1 + random() % most)};
    for (uint64_t& load : request.loads[0]) load = random() % (random() % 7 == 0 ? 9'000 : 90);
    if (round % 3 == 0) {
      const uint32_t domains = 1 + random() % ranks;
      for (uint32_t r = 0; r < ranks; ++r) {
        options.domain_of_rank.push_back(r < domains ? r : random() % domains);
      }
      request.domain_of_rank = options.domain_of_rank;
      options.replicas_min = request.replicas_min = replicas_possible(request);
      if (options.replicas_min > 1) ++in_domains;
    }
    const uint32_t promised = std::min(replicas_possible(request), options.replicas_min);
    if (request.experts() * options.replicas_min > request.slots()) continue;
    const auto placed = lazarus_layer(request.loads[0], options);
    ASSERT_TRUE(placed.ok()) << placed.error().message;
    ASSERT_GE(fewest_domains(*placed, request.experts(), options), promised) << "round " << round;
  }
  EXPECT_GT(in_domains, 10'000);
}

TEST(LazarusTest, AlignsLayers) {
  PlacementRequest request{.ranks = 10, .slots_per_rank = 3, .replicas_min = 2};
  std::mt19937 random(8);
  for (int layer = 0; layer < 6; ++layer) {
    auto& loads = request.loads.emplace_back();
    for (int e = 0; e < 13; ++e) loads.push_back(1 + random() % 1'000);
  }
  const auto joint = [&](const std::vector<LayerSlots>& layers) {
    std::vector<RankMask> masks;
    for (const LayerSlots& layer : layers) {
      const auto of_layer = holder_masks(layer, 13);
      masks.insert(masks.end(), of_layer.begin(), of_layer.end());
    }
    return surviving_sets(masks, 10);
  };
  const auto aligned = plan_lazarus(request);
  ASSERT_TRUE(aligned.ok());
  std::vector<LayerSlots> alone;
  for (const auto& loads : request.loads) alone.push_back(*lazarus_layer(loads, {10, 3, 2}));
  EXPECT_EQ(joint(*aligned)[1], 10u);
  EXPECT_GE(joint(*aligned)[2], joint(alone)[2]);
  for (size_t layer = 0; layer < alone.size(); ++layer) {
    EXPECT_EQ(survivors((*aligned)[layer], 13, 10), survivors(alone[layer], 13, 10))
        << "ranks are renamed, no more";
  }
}

TEST(LazarusTest, PlansMoreRanksThanItCanEnumerate) {
  const std::vector<uint64_t> loads = {900, 500, 300, 200, 100, 50, 25, 12, 6, 3, 1, 0};
  const auto placed = lazarus_layer(loads, {.ranks = 40, .slots_per_rank = 2, .replicas_min = 3});
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  for (const auto& held_by : holders(*placed, 12)) EXPECT_GE(held_by.size(), 3u);
}

// Loads so even that nothing is truncated: the published construction, group by group of ranks.
TEST(LazarusTest, OverlapsWholeGroupsOfExperts) {
  const std::vector<uint64_t> loads(12, 100);
  const auto placed = lazarus_layer(loads, {.ranks = 6, .slots_per_rank = 4, .replicas_min = 2});
  ASSERT_TRUE(placed.ok());
  // Three groups of four experts on two ranks each: of the 15 pairs of ranks only 3 are fatal.
  EXPECT_EQ(survivors(*placed, 12, 6)[2], 12u);
}

TEST(LazarusTest, RefusesInvalidRequest) {
  const std::vector<uint64_t> loads(8, 1);
  EXPECT_THAT(lazarus_layer(loads, {2, 3, 1}).error().message, HasSubstr("6 slots for 8 experts"));
  EXPECT_THAT(lazarus_layer(loads, {0, 3, 1}).error().message, HasSubstr("0 ranks of 3 slots"));
  EXPECT_FALSE(lazarus_layer(loads, {4, 0, 1}).ok());
  EXPECT_THAT(lazarus_layer(loads, {10, 100'000'000, 1}).error().message,
              HasSubstr("at most 4194304 slots in all"));
  EXPECT_THAT(lazarus_layer(loads, {4, 2, 1, 5}).error().message, HasSubstr("5 failures of 4"));
  EXPECT_THAT(lazarus_layer(loads, {4, 2, 1, 0, {0, 1}}).error().message,
              HasSubstr("domains of 2 ranks"));
}

}  // namespace
}  // namespace moetrain
