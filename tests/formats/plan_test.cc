#include "formats/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/formats/samples.h"

namespace ckpt {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMax = ~0ull;

std::vector<UnitSpec> two_units() {
  return {test::sample_unit("layers.0.attention"), test::sample_unit("trainer")};
}
std::string coverage_error(std::vector<UnitId> units, std::vector<UnitRange> ranges) {
  const Status status = check_exact_coverage(units, std::move(ranges), two_units());
  if (status.ok()) return "none";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

TEST(Coverage, AcceptsExactCoverInAnyOrder) {
  EXPECT_EQ(coverage_error({0, 1}, {{1, 44, 100}, {0, 0, 144}, {1, 0, 44}}), "none");
  EXPECT_EQ(coverage_error({1, 0}, {{1, 0, 144}, {0, 0, 144}}), "none");
  EXPECT_EQ(coverage_error({1}, {{1, 0, 144}}), "none");
  EXPECT_EQ(coverage_error({}, {}), "none");
}

TEST(Coverage, ErrorNamesUnitAndRange) {
  EXPECT_EQ(coverage_error({0}, {{0, 0, 40}, {0, 60, 84}}),
            "unit layers.0.attention: no fragment covers bytes [40, 60)");
  EXPECT_EQ(coverage_error({0}, {{0, 4, 140}}),
            "unit layers.0.attention: no fragment covers bytes [0, 4)");
  EXPECT_EQ(coverage_error({0}, {{0, 0, 140}}),
            "unit layers.0.attention: no fragment covers bytes [140, 144)");
  EXPECT_EQ(coverage_error({0, 1}, {{0, 0, 144}}),
            "unit trainer: no fragment covers bytes [0, 144)");
  EXPECT_EQ(coverage_error({0, 1}, {{1, 0, 144}}),
            "unit layers.0.attention: no fragment covers bytes [0, 144)");
  EXPECT_EQ(coverage_error({0}, {{0, 0, 100}, {0, 90, 54}}),
            "unit layers.0.attention: two fragments cover bytes [90, 100)");
  EXPECT_EQ(coverage_error({0}, {{0, 0, 144}, {0, 10, 20}}),
            "unit layers.0.attention: two fragments cover bytes [10, 30)");
  EXPECT_EQ(coverage_error({0}, {{0, 0, 144}, {0, 0, 144}}),
            "unit layers.0.attention: two fragments cover bytes [0, 144)");
}

TEST(Coverage, RefusesRangesOutsidePlannedUnits) {
  EXPECT_THAT(coverage_error({0}, {{0, 0, 145}}), HasSubstr("ends beyond its 144"));
  EXPECT_THAT(coverage_error({0}, {{0, 0, 144}, {0, kMax, 2}}), HasSubstr("ends beyond"));
  EXPECT_THAT(coverage_error({0}, {{0, 0, 144}, {0, 2, kMax}}), HasSubstr("ends beyond"));
  EXPECT_THAT(coverage_error({0}, {{0, 0, 144}, {0, 7, 0}}), HasSubstr("has no bytes"));
  EXPECT_THAT(coverage_error({0}, {{0, 0, 144}, {1, 0, 144}}),
              HasSubstr("unit trainer: not in the plan"));
  EXPECT_THAT(coverage_error({1}, {{0, 0, 144}, {1, 0, 144}}),
              HasSubstr("unit layers.0.attention: not in the plan"));
  EXPECT_THAT(coverage_error({0}, {{0, 0, 144}, {9, kMax, kMax}}),
              HasSubstr("unit number 9: not in the plan"));
  EXPECT_THAT(coverage_error({0, 9}, {{0, 0, 144}}), HasSubstr("unit number 9: not registered"));
  EXPECT_THAT(coverage_error({0, 0}, {{0, 0, 144}}), HasSubstr("planned twice"));
}

// Random exact covers hold; any one fragment changed by any amount does not.
TEST(Coverage, PropertyOnlyExactCoverIsAccepted) {
  constexpr uint64_t kSeed = 20;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    std::vector<UnitSpec> specs;
    std::vector<UnitId> units;
    std::vector<UnitRange> ranges;
    for (UnitId unit = 0; unit < 1 + random() % 5; ++unit) {
      specs.push_back({.name = fmt::format("unit.{}", unit), .bytes = 1 + random() % 1000});
      units.push_back(unit);
      for (uint64_t at = 0; at < specs.back().bytes;) {
        const uint64_t length = 1 + random() % (specs.back().bytes - at);
        ranges.push_back({unit, at, length});
        at += length;
      }
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    ASSERT_TRUE(check_exact_coverage(units, ranges, specs).ok());

    std::vector<UnitRange> changed = ranges;
    UnitRange& one = changed[random() % changed.size()];
    switch (random() % 4) {
      case 0:
        one.length += 1 + random() % 3;
        break;
      case 1:
        one.length -= 1;
        break;
      case 2:
        one.offset += 1 + random() % 3;
        break;
      default:
        changed.push_back(one);
    }
    ASSERT_FALSE(check_exact_coverage(units, changed, specs).ok());
  }
}

TEST(PlanHash, DependsOnContentNotOrder) {
  const Plan plan{.units = {0, 1},
                  .fragments = {{0, {0, 0, 144}}, {0, {1, 0, 72}}, {1, {1, 72, 72}}}};
  Plan other = plan;
  std::reverse(other.units.begin(), other.units.end());
  std::reverse(other.fragments.begin(), other.fragments.end());
  EXPECT_EQ(plan_hash(plan), plan_hash(other));

  std::vector<Plan> changed(6, plan);
  changed[0].units.push_back(2);
  changed[1].fragments.pop_back();
  changed[2].fragments[1].rank = 1;
  changed[3].fragments[1].range.length = 71;
  changed[4].fragments[0].range.unit = 1;
  changed[5].memory_units = {1};
  for (const Plan& one : changed) EXPECT_NE(plan_hash(one), plan_hash(plan));
}

}  // namespace
}  // namespace ckpt
