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

// Every placement of these replica counts, whatever the names of the ranks: ranks in ascending
// order of their contents.
class BruteForce {
 public:
  BruteForce(std::vector<uint32_t> replicas, uint32_t ranks, uint32_t slots)
      : left_(std::move(replicas)), ranks_(ranks), slots_(slots) {
    contents({}, 0);
    place(0);
  }
  const std::vector<uint64_t>& best() const { return best_; }

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
      best_ = std::max(best_, survivors(placed_, static_cast<uint32_t>(left_.size()), ranks_));
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
};

void expect_optimal(const std::vector<uint32_t>& replicas, uint32_t ranks, uint32_t slots) {
  const LazarusOptions options{.ranks = ranks, .slots_per_rank = slots, .replicas_min = 1};
  const auto experts = static_cast<uint32_t>(replicas.size());
  const LayerSlots placed = place_replicas(replicas, options);
  EXPECT_EQ(replica_counts(placed, experts), replicas);
  EXPECT_EQ(survivors(placed, experts, ranks), BruteForce(replicas, ranks, slots).best())
      << ranks << " ranks, " << slots << " slots, replicas " << testing::PrintToString(replicas);
}

// Non-descending counts of `experts` experts that sum to `total`, each at least `least`.
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

// Group by group of ranks with loads so even that nothing is truncated: the published construction.
TEST(LazarusTest, OverlapsWholeGroupsOfExperts) {
  const std::vector<uint64_t> loads(12, 100);
  const auto placed = lazarus_layer(loads, {.ranks = 6, .slots_per_rank = 4, .replicas_min = 2});
  ASSERT_TRUE(placed.ok());
  // Three groups of four experts on two ranks each: of the 15 pairs of ranks only 3 are fatal.
  EXPECT_EQ(survivors(*placed, 12, 6)[2], 12u);
}

TEST(LazarusTest, RefusesWhatCannotBe) {
  const std::vector<uint64_t> loads(8, 1);
  EXPECT_THAT(lazarus_layer(loads, {2, 3, 1}).error().message, HasSubstr("6 slots for 8 experts"));
  EXPECT_THAT(lazarus_layer(loads, {0, 3, 1}).error().message, HasSubstr("0 ranks of 3 slots"));
  EXPECT_FALSE(lazarus_layer(loads, {4, 0, 1}).ok());
}

}  // namespace
}  // namespace moetrain
