// The bytes of a unit that each rank holds, and the snapshot plans of sharded experts from them.
#include "trainer/checkpoint/unit_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ckptd/limits.h"
#include "trainer/checkpoint/plan.h"

namespace moetrain {
namespace {

static_assert(kSnapshotFragmentsMax == ckptd::limits::kFragmentsPerSnapshotMax);

ModelConfig ranges_shape(uint32_t layers, uint32_t experts) {
  ModelConfig config;
  config.layers = layers;
  config.experts = experts;
  config.hidden = 48;
  return config;
}

const StateUnit& unit_named(const std::vector<StateUnit>& units, const std::string& name) {
  return *std::ranges::find(units, name, &StateUnit::name);
}

TEST(UnitRangesTest, ShardSpansOneWeightAndTwoMomentRanges) {
  const auto units = state_units(ranges_shape(1, 2));
  const StateUnit& weights = unit_named(units, "layers.0.experts.1.weights");
  const StateUnit& optimizer = unit_named(units, "layers.0.experts.1.optimizer");
  const uint64_t elements = weights.bytes / 4;
  ASSERT_EQ(elements % 2, 0u);
  const Ownership sharded = Ownership::sharded(1, 2, 2);
  const uint64_t half = elements / 2 * 4;
  EXPECT_THAT(held_ranges(weights, sharded, 1), testing::ElementsAre(UnitRange{half, half}));
  EXPECT_THAT(held_ranges(optimizer, sharded, 0),
              testing::ElementsAre(UnitRange{0, half}, UnitRange{weights.bytes, half}));
  EXPECT_THAT(held_ranges(optimizer, Ownership::sharded(1, 2, 1), 0),
              testing::ElementsAre(UnitRange{0, optimizer.bytes}));
}

TEST(UnitRangesTest, DenseUnitsAreHeldWholeInBothModes) {
  const auto units = state_units(ranges_shape(1, 2));
  const auto placement = static_placement(1, 2, 2);
  ASSERT_TRUE(placement.ok());
  for (const Ownership& ownership :
       {Ownership::replicated(*placement), Ownership::sharded(1, 2, 2)}) {
    for (const StateUnit& unit : units) {
      if (unit.expert) continue;
      EXPECT_THAT(held_ranges(unit, ownership, 1), testing::ElementsAre(UnitRange{0, unit.bytes}));
    }
  }
  const StateUnit& weights = unit_named(units, "layers.0.experts.1.weights");
  EXPECT_THAT(held_ranges(weights, Ownership::replicated(*placement), 0), testing::IsEmpty());
}

std::vector<uint32_t> units_with_experts(const std::vector<StateUnit>& units, uint32_t below) {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < units.size(); ++id) {
    if (!units[id].expert || *units[id].expert < below) ids.push_back(id);
  }
  return ids;
}

void expect_covered_once(const std::vector<StateUnit>& units, const std::vector<uint32_t>& ids,
                         const std::vector<ckpt_fragment>& plan) {
  std::map<uint32_t, uint64_t> covered;
  for (const ckpt_fragment& fragment : plan) {
    EXPECT_EQ(fragment.offset, covered[fragment.unit]) << units[fragment.unit].name;
    EXPECT_GT(fragment.length, 0u);
    covered[fragment.unit] += fragment.length;
  }
  ASSERT_EQ(covered.size(), ids.size());
  for (const uint32_t id : ids) EXPECT_EQ(covered[id], units[id].bytes) << units[id].name;
}

TEST(ShardedPlanTest, PlanIsBalancedAndCoversUnitsOnce) {
  const auto units = state_units(ranges_shape(2, 8));
  for (const uint32_t ranks : {1u, 2u, 3u, 5u, 8u, 12u}) {
    const Ownership ownership = Ownership::sharded(2, 8, ranks);
    for (uint32_t experts = 1; experts <= 8; ++experts) {
      const auto ids = units_with_experts(units, experts);
      const auto plan = snapshot_plan(units, ids, ownership, DenseSharding::kBytes);
      expect_covered_once(units, ids, plan);
      EXPECT_LE(bytes_by_rank(plan, ranks).max_to_mean(), 1.01)
          << experts << " experts, " << ranks << " ranks";
      EXPECT_LE(plan.size(), fragments_max(units, ownership));
      for (const ckpt_fragment& fragment : plan) {
        const StateUnit& unit = units[fragment.unit];
        if (!unit.expert) continue;
        const UnitRange range{fragment.offset, fragment.length};
        EXPECT_THAT(held_ranges(unit, ownership, fragment.rank), testing::Contains(range));
      }
    }
  }
}

TEST(ShardedPlanTest, ExcessRanksHoldNothing) {
  StateUnit unit{.name = "layers.0.experts.0.weights", .layer = 0, .expert = 0, .part = "weights"};
  unit.tensors.push_back({.parameter = "w", .offset = 0, .bytes = 3 * 4});
  unit.bytes = 3 * 4;
  const Ownership ownership = Ownership::sharded(1, 1, 8);
  uint64_t bytes = 0;
  uint32_t without = 0;
  for (uint32_t rank = 0; rank < 8; ++rank) {
    const auto ranges = held_ranges(unit, ownership, rank);
    without += ranges.empty() ? 1 : 0;
    for (const UnitRange& range : ranges) bytes += range.length;
  }
  EXPECT_EQ(bytes, unit.bytes);
  EXPECT_EQ(without, 5u);
}

TEST(ShardedPlanTest, TooManyFragmentsErrorNamesRankLimit) {
  std::vector<StateUnit> units = {{.name = "trainer", .bytes = 4096}};
  for (uint32_t expert = 0; expert < 1000; ++expert) {
    units.push_back({.name = "w", .layer = 0, .expert = expert, .part = "weights"});
    units.push_back({.name = "o", .layer = 0, .expert = expert, .part = "optimizer"});
  }
  const Status refused = check_fragments(units, Ownership::sharded(1, 1000, 4096));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ckpt::ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("use at most 1397 ranks"));
  EXPECT_TRUE(check_fragments(units, Ownership::sharded(1, 1000, 1397)).ok());
  EXPECT_FALSE(check_fragments(units, Ownership::sharded(1, 1000, 1398)).ok());
}

}  // namespace
}  // namespace moetrain
