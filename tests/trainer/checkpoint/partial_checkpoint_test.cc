// Contents of snapshots and losses of recoveries, over whole histories, without a daemon.
#include "trainer/checkpoint/partial_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "tests/trainer/checkpoint/partial_history.h"
#include "trainer/checkpoint/plan.h"
#include "trainer/placement/lazarus.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

TEST(PartialCheckpointTest, CountsLostTokensAfterAnyHistory) {
  int older_tables = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History history({.k = 1 + seed % 5,
                     .selector = kSelectors[seed % std::size(kSelectors)],
                     .parts = static_cast<PartialParts>(seed / 3 % 3),
                     .plt_budget = seed % 2 == 0 ? 1.0 : 0.05},
                    seed);
    history.snapshot(false, false);
    std::vector<uint64_t> failed;
    for (int event = 0; event < 150; ++event) {
      const uint32_t kind = history.random()() % 8;
      if (kind < 5) history.step();
      // At most one snapshot per step, as in the trainer.
      if (kind == 5 || kind == 6) {
        const auto committed = history.committed();
        if (committed.back() == history.now()) continue;
        const bool fails = history.random()() % 4 == 0;
        history.snapshot(false, fails);
        if (fails) failed.push_back(history.now());
      }
      if (kind == 6 && !failed.empty()) {
        history.mark_failed(failed.back());
        failed.pop_back();
      }
      if (kind == 7 && history.random()() % 3 == 0) {
        const auto steps = history.committed();
        const size_t back = history.random()() % std::min<size_t>(3, steps.size());
        const auto loss = history.resume(steps[steps.size() - 1 - back]);
        ASSERT_TRUE(loss.ok()) << loss.error().message;
        failed.clear();
      }
      history.expect_true_losses();
    }
    older_tables += history.older_tables();
  }
  EXPECT_GT(older_tables, 0) << "no snapshot failed between an expert's and the view's";
}

TEST(PartialCheckpointTest, RollbackAndRestartLossesAddUp) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History history({.k = 1 + seed % 3,
                     .selector = kSelectors[seed % std::size(kSelectors)],
                     .parts = static_cast<PartialParts>(seed / 3 % 3),
                     .plt_budget = seed % 2 == 0 ? 1.0 : 0.2},
                    seed);
    history.snapshot(false, false);
    for (int event = 0; event < 150; ++event) {
      const uint32_t kind = history.random()() % 8;
      if (kind < 4) history.step();
      if ((kind == 4 || kind == 5) && history.committed().back() != history.now()) {
        history.snapshot(false, false);
      }
      if (kind == 6) {
        ASSERT_TRUE(history.roll_back(history.random()() % kGrid.size()).ok());
      } else if (kind == 7 && history.random()() % 4 == 0) {
        ASSERT_TRUE(history.resume(history.committed().back()).ok());
      }
      history.expect_true_totals();
    }
  }
}

TEST(PartialCheckpointTest, SavesAllUnitsFirstAndOnRequest) {
  History history({.k = 1}, 1);
  const size_t all = history.units().size();
  history.step();
  EXPECT_EQ(history.snapshot(false, true).units.size(), all);
  history.mark_failed(1);
  history.step();
  EXPECT_EQ(history.snapshot(false, false).units.size(), all) << "the first one had failed";
  history.step();
  EXPECT_EQ(history.snapshot(false, false).experts.size(), kLayers);
  history.step();
  EXPECT_EQ(history.snapshot(true, false).units.size(), all);
}

// A run that saved one expert at a time under a wide bound resumes with a narrow bound.
TEST(PartialCheckpointTest, NarrowerBoundHoldsFromFirstSnapshot) {
  History before({.k = 1, .selector = Selector::kSequential, .plt_budget = 1}, 7);
  before.snapshot(false, false);
  for (int i = 0; i < 12; ++i) {
    before.step();
    before.snapshot(false, false);
  }
  ASSERT_TRUE(before.resume(12).ok());
  History after({.k = 3, .staleness_max = 2, .plt_budget = 1}, 7);
  const PartialState saved = before.partial().state();
  ASSERT_TRUE(after.partial().resume(saved, before.routed(), before.stamps()).ok());
  ExpertStamps stamps = before.stamps();
  std::vector<int64_t> updates(kGrid.size(), 12);
  std::map<uint32_t, uint64_t> step_of;
  for (uint64_t step = 13; step < 20; ++step) {
    const auto plan = after.partial().next(step, {before.routed(), updates}, false, stamps);
    if (step == 13) {
      EXPECT_GT(plan.experts.size(), 3 * kLayers);
    }
    if (step > 13) {
      EXPECT_EQ(plan.experts.size(), 3 * kLayers);
    }
    for (uint32_t expert = 0; expert < kGrid.size(); ++expert) {
      const auto age = step - static_cast<uint64_t>(stamps.at(ExpertPart::kWeights, expert).step);
      EXPECT_LE(age, 2u) << "expert " << expert << " at step " << step;
    }
  }
}

// No snapshot is taken while ckptd is away. The bound counts steps, so a gap must not break it.
TEST(PartialCheckpointTest, BoundHoldsAfterGapInSnapshots) {
  History history({.k = 2, .staleness_max = 4, .plt_budget = 1}, 8);
  history.partial().set_interval(2);
  uint64_t most = 0;
  for (uint64_t step = 0; step < 60; ++step) {
    history.step();
    if (step % 2 != 0 || (step > 20 && step < 35)) continue;
    const auto plan = history.snapshot(false, false);
    most = std::max<uint64_t>(most, step > 2 ? plan.experts.size() : 0);
    for (uint32_t expert = 0; expert < kGrid.size(); ++expert) {
      const auto saved =
          static_cast<uint64_t>(history.stamps().at(ExpertPart::kWeights, expert).step);
      EXPECT_LE(history.now() - saved, 4u * 2) << "expert " << expert << " at " << history.now();
    }
  }
  EXPECT_GT(most, 2u * kLayers) << "the one after the gap";
}

TEST(PartialCheckpointTest, KeepsNextExpertsInMemory) {
  for (const Selector selector : kSelectors) {
    History history({.k = 1, .k_snapshot = 3, .selector = selector}, 4);
    EXPECT_TRUE(history.snapshot(false, false).memory_experts.empty()) << "the first one is full";
    std::map<uint32_t, int> unseen;  // snapshots since an expert was in one
    for (int round = 0; round < 40; ++round) {
      history.step();
      const auto plan = history.snapshot(false, false);
      EXPECT_EQ(plan.experts.size(), kLayers);
      EXPECT_EQ(plan.memory_experts.size(), 2 * kLayers);
      std::set<uint32_t> both(plan.experts.begin(), plan.experts.end());
      both.insert(plan.memory_experts.begin(), plan.memory_experts.end());
      EXPECT_EQ(both.size(), 3 * kLayers) << "no expert is taken twice";
      EXPECT_EQ(plan.memory_units.size(), 2 * 2 * kLayers);
      EXPECT_TRUE(std::includes(plan.units.begin(), plan.units.end(), plan.memory_units.begin(),
                                plan.memory_units.end()));
      bool kept = false;  // units for the disk come before units for memory
      for (const ckpt_fragment& fragment : plan.fragments) {
        const bool memory =
            std::binary_search(plan.memory_units.begin(), plan.memory_units.end(), fragment.unit);
        EXPECT_TRUE(memory || !kept);
        kept |= memory;
      }
      for (uint32_t expert = 0; expert < kGrid.size(); ++expert) {
        int& rounds = unseen[expert];
        rounds = both.contains(expert) ? 0 : rounds + 1;
        EXPECT_LE(rounds, selector == Selector::kSequential ? 2 : 24) << "expert " << expert;
      }
    }
  }
}

TEST(PartialCheckpointTest, KAndKSnapshotGrowTogether) {
  History history({.k = 1, .k_snapshot = 2, .plt_budget = 0.01}, 5);
  history.snapshot(false, false);
  for (int i = 0; i < 6; ++i) {
    history.step();
    history.snapshot(false, false);
  }
  EXPECT_EQ(history.partial().k_snapshot(), 2u);
  ASSERT_TRUE(history.resume(3).ok());
  const uint32_t k = history.partial().k();
  EXPECT_GT(k, 1u);
  EXPECT_EQ(history.partial().k_snapshot(), std::min(2 * k, kExperts));
}

TEST(PartialCheckpointTest, MemoryExpertsFollowKSnapshot) {
  History history({.k = 1, .k_snapshot = kAllExperts, .k_snapshot_auto = true, .plt_budget = 1}, 6);
  history.snapshot(false, false);
  history.step();
  EXPECT_TRUE(history.snapshot(false, false).memory_experts.empty()) << "nobody has told yet";
  history.partial().set_k_snapshot(3);
  EXPECT_EQ(history.snapshot(false, false).memory_experts.size(), 2 * kLayers);
  history.partial().set_k_snapshot(1);
  EXPECT_TRUE(history.snapshot(false, false).memory_experts.empty());
  // A survivor must not plan with a K that a replacement rank was never told.
  history.partial().set_k_snapshot(3);
  ASSERT_TRUE(history.resume(1).ok());
  EXPECT_EQ(history.partial().k_snapshot(), history.partial().k());
  history.partial().set_k_snapshot(3);
  history.partial().start();
  EXPECT_EQ(history.partial().k_snapshot(), history.partial().k());
}

TEST(PartialCheckpointTest, OmitsOnlySelectedParts) {
  for (const auto& [parts, left_out] :
       {std::pair{PartialParts::kWeights, "weights"}, {PartialParts::kOptimizer, "optimizer"}}) {
    History history({.k = 2, .parts = parts}, 1);
    history.snapshot(false, false);
    history.step();
    const auto plan = history.snapshot(false, false);
    EXPECT_EQ(plan.experts.size(), 2 * kLayers);
    EXPECT_EQ(plan.units.size(), history.units().size() - kLayers * (kExperts - 2));
    for (uint32_t id = 0; id < history.units().size(); ++id) {
      if (std::binary_search(plan.units.begin(), plan.units.end(), id)) continue;
      EXPECT_EQ(history.units()[id].part, left_out);
    }
  }
}

TEST(PartialCheckpointTest, RankSharesCoverEachSnapshotUnitOnce) {
  History history({.k = 2}, 3);
  for (int round = 0; round < 12; ++round) {
    history.step();
    const auto plan = history.snapshot(false, false);
    std::map<uint32_t, uint64_t> covered;
    for (const ckpt_fragment& fragment : plan.fragments) {
      EXPECT_EQ(fragment.offset, covered[fragment.unit]);
      covered[fragment.unit] += fragment.length;
    }
    EXPECT_EQ(covered.size(), plan.units.size());
    for (const uint32_t id : plan.units) EXPECT_EQ(covered[id], history.units()[id].bytes);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_LE(bytes_of_rank(plan.fragments, rank),
                largest_share(history.units(), Ownership::replicated(history.placement()),
                              DenseSharding::kBytes));
    }
  }
}

// The same test for random ranks, replicas, K and parts.
TEST(PartialCheckpointTest, SharesCoverEveryByteOnceInAnyPlacement) {
  const std::vector<StateUnit> units = small_units();
  const uint32_t seed = 17;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    const auto ranks = static_cast<uint32_t>(1 + random() % 7);
    const auto slots = static_cast<uint32_t>((kExperts + ranks - 1) / ranks + random() % 4);
    ComputePlacement placement{.ranks = ranks, .experts = kExperts, .slots = {}};
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      std::vector<uint64_t> loads(kExperts);
      for (uint64_t& load : loads) load = 1 + random() % 100;
      placement.slots.push_back(*lazarus_layer(loads, {ranks, slots, 1}));
    }
    PartialOptions options{.k = static_cast<uint32_t>(1 + random() % kExperts),
                           .selector = kSelectors[random() % std::size(kSelectors)],
                           .parts = static_cast<PartialParts>(random() % 3),
                           .dense = static_cast<DenseSharding>(random() % 3)};
    if (random() % 2 == 0) options.k_snapshot = options.k + random() % (kExperts - options.k + 1);
    PartialCheckpoint partial(units, placement, options);
    ExpertStamps stamps(kGrid);
    std::vector<int64_t> routed(kGrid.size());
    for (uint64_t step = 0; step < 6; ++step) {
      for (int64_t& tokens : routed) tokens += static_cast<int64_t>(random() % 40);
      const auto plan = partial.next(step, {routed, routed}, false, stamps);
      std::map<uint32_t, std::map<uint64_t, uint64_t>> covered;  // by unit: offset -> length
      for (const ckpt_fragment& fragment : plan.fragments) {
        ASSERT_LT(fragment.rank, ranks);
        const StateUnit& unit = units.at(fragment.unit);
        if (unit.expert) {
          const auto holding = holders_of_experts(placement, *unit.layer);
          EXPECT_THAT(holding[*unit.expert], testing::Contains(fragment.rank));
        }
        EXPECT_TRUE(covered[fragment.unit].emplace(fragment.offset, fragment.length).second);
      }
      ASSERT_EQ(covered.size(), plan.units.size());
      for (const uint32_t id : plan.units) {
        uint64_t end = 0;
        for (const auto& [offset, length] : covered[id]) {
          EXPECT_EQ(offset, end) << units[id].name;
          end = offset + length;
        }
        EXPECT_EQ(end, units[id].bytes) << units[id].name;
      }
    }
  }
}

TEST(PartialCheckpointTest, AutomaticKSavesAllUntilKIsSet) {
  History history({.k_auto = true}, 4);
  history.step();
  EXPECT_EQ(history.snapshot(false, false).experts.size(), kGrid.size());
  history.step();
  EXPECT_EQ(history.snapshot(false, false).experts.size(), kGrid.size()) << "nothing was chosen";
  history.partial().set_k(2);
  history.step();
  EXPECT_EQ(history.snapshot(false, false).experts.size(), 2 * kLayers);
  EXPECT_EQ(history.partial().staleness_max(), 4 * kExperts) << "whatever K becomes";
  ASSERT_TRUE(history.resume(3).ok());
  EXPECT_GE(history.partial().k(), 2u) << "it is kept with the run";
}

TEST(PartialCheckpointTest, RefusesVersionsThatContradictTheView) {
  History history({.k = 1}, 6);
  history.step();
  history.snapshot(false, false);
  const PartialState view = history.partial().state();
  const std::vector<int64_t> routed(kGrid.size(), 1000);
  ExpertStamps stamps = history.stamps();
  stamps.at(ExpertPart::kWeights, 3).snapshot = 2;
  stamps.at(ExpertPart::kOptimizer, 3).snapshot = 2;
  EXPECT_THAT(
      history.partial().resume(view, routed, stamps).error().message,
      HasSubstr("layers.0.experts.3: its version says it is of snapshot 2, the view is of"));
  stamps = history.stamps();
  for (const ExpertPart part : {ExpertPart::kWeights, ExpertPart::kOptimizer}) {
    stamps.at(part, 7).tokens = 1001;
  }
  EXPECT_THAT(history.partial().resume(view, routed, stamps).error().message,
              HasSubstr("layers.1.experts.1: its version holds"));
  EXPECT_EQ(history.partial().state(), view) << "nothing changed";
}

}  // namespace
}  // namespace moetrain
