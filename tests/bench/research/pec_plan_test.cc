// The plans of `ckptbench pec`: shapes, coverage, balance, and the baselines for comparison.
#include "bench/research/pec_plan.h"

#include <gtest/gtest.h>

#include <map>

namespace bench {
namespace {

using moetrain::DenseSharding;
using moetrain::Share;

constexpr uint32_t kRanks = 8;

uint64_t total(const std::vector<PecUnit>& units) {
  uint64_t bytes = 0;
  for (const PecUnit& unit : units) bytes += unit.bytes;
  return bytes;
}

PecPlanner planner_of(const PecModel& model) {
  return {units_of(model), model.moe_layers(), model.experts, kRanks};
}

void expect_covers(const PecPlan& plan, const std::vector<PecUnit>& units) {
  std::map<uint32_t, uint64_t> covered;
  for (const Share& share : plan.shares) {
    EXPECT_EQ(share.offset, covered[share.unit]) << units[share.unit].name;
    covered[share.unit] += share.length;
  }
  ASSERT_EQ(covered.size(), plan.units.size());
  uint64_t bytes = 0;
  for (const uint32_t unit : plan.units) {
    EXPECT_EQ(covered[unit], units[unit].bytes) << units[unit].name;
    bytes += units[unit].bytes;
  }
  EXPECT_EQ(bytes, plan.bytes);
}

// Counted by hand: tokens, positions, attention, dense and expert feed-forwards, routers, norms.
TEST(PecModel, HasTheParametersOfItsShape) {
  const uint64_t h = 768;
  const uint64_t feed_forward = 8 * h * h + 5 * h;
  const uint64_t parameters = 50'257 * h + 1'024 * h + 12 * (4 * h * h + 4 * h + 4 * h) +
                              6 * feed_forward + 6 * 8 * (feed_forward + h) + 2 * h;
  const auto units = units_of(pec_models()[0]);
  EXPECT_EQ(total(units), 12 * parameters);
  EXPECT_EQ(parameters / 1'000'000, 322u);
  for (const PecUnit& unit : units) EXPECT_EQ(unit.bytes % 4, 0u) << unit.name;
}

TEST(PecPlan, CoversEveryByteAndVisitsEveryExpert) {
  for (const PecModel& model : pec_models()) {
    const auto units = units_of(model);
    for (const DenseSharding dense :
         {DenseSharding::kEqual, DenseSharding::kAdaptive, DenseSharding::kBytes}) {
      PecPlanner planner = planner_of(model);
      EXPECT_EQ(planner.next(model.experts, dense).bytes, total(units));
      std::map<uint32_t, int> taken;
      for (uint32_t snapshot = 0; snapshot < model.experts / 2; ++snapshot) {
        const PecPlan plan = planner.next(2, dense);
        expect_covers(plan, units);
        for (const uint32_t unit : plan.units) ++taken[unit];
      }
      for (uint32_t id = 0; id < units.size(); ++id) {
        const int expected = units[id].expert ? 1 : static_cast<int>(model.experts / 2);
        EXPECT_EQ(taken[id], expected) << units[id].name;
      }
    }
  }
}

TEST(PecPlan, OneExpertPerLayerIsSmallAndBalanced) {
  const PecModel& model = pec_models()[0];
  const auto units = units_of(model);
  PecPlanner planner = planner_of(model);
  for (int snapshot = 0; snapshot < 8; ++snapshot) {
    const PecPlan plan = planner.next(1, DenseSharding::kBytes);
    EXPECT_LE(static_cast<double>(plan.bytes), 0.40 * static_cast<double>(total(units)));
    const auto ranks = moetrain::summarise(plan.shares, kRanks);
    EXPECT_LE(ranks.max_to_mean(), 1.05);
    const PecDenominators usual = pec_denominators(units, model.experts, kRanks);
    EXPECT_LE(static_cast<double>(ranks.max_bytes), 0.231 * static_cast<double>(usual.dense_rank0));
    EXPECT_LT(usual.even, usual.zero2);
    EXPECT_LT(usual.zero2, usual.dense_rank0);
  }
}

TEST(PecPlan, IsSplitToFitArenaOfRank) {
  const PecModel& model = pec_models()[0];
  const auto units = units_of(model);
  PecPlanner planner = planner_of(model);
  const PecPlan plan = planner.next(model.experts, DenseSharding::kBytes);
  EXPECT_EQ(split_plan(plan, kRanks, plan.bytes, 0, units)->size(), 1u);
  const uint64_t room = 320ull << 20;
  const auto parts = split_plan(plan, kRanks, room, 4096, units);
  ASSERT_TRUE(parts.ok());
  EXPECT_GT(parts->size(), 1u);
  PecPlan joined;
  for (const PecPlan& part : *parts) {
    expect_covers(part, units);
    EXPECT_LE(moetrain::summarise(part.shares, kRanks).max_bytes, room);
    joined.units.insert(joined.units.end(), part.units.begin(), part.units.end());
  }
  EXPECT_EQ(joined.units, plan.units);
  const auto refused = split_plan(plan, kRanks, 1u << 20, 4096, units);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("its arena takes 1048576"), std::string::npos);
  EXPECT_EQ(refused.error().message.find("unit number"), std::string::npos)
      << "units have names: " << refused.error().message;
}

}  // namespace
}  // namespace bench
