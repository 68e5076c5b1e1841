#include "bench/research/sharded_arms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace bench {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> flags_of(std::string_view name, const ShardedRouting& routing = {}) {
  const auto arm = std::ranges::find(kShardedArms, name, &ShardedArm::name);
  EXPECT_NE(arm, std::end(kShardedArms)) << name;
  return sharded_flags(*arm, 8, sharded_steps(12), routing, "nodes.csv");
}

// In how many ingredients an arm differs from the reference.
int differences(const ShardedArm& arm) {
  const ShardedArm& laer = kShardedArms[0];
  return (arm.sharded != laer.sharded) +
         (std::string_view(arm.policy) != std::string_view(laer.policy)) +
         (arm.replans != laer.replans) + (arm.lite_routing != laer.lite_routing) +
         (arm.prefetch != laer.prefetch) + (arm.delayed_reshard != laer.delayed_reshard);
}

// The value behind a flag; empty if the flag is not there.
std::string value_of(const std::vector<std::string>& flags, const std::string& flag) {
  const auto found = std::ranges::find(flags, flag);
  return found == flags.end() || found + 1 == flags.end() ? "" : *(found + 1);
}

TEST(ShardedArms, TheFirstIsTheOnlyReference) {
  std::set<std::string_view> names;
  for (const ShardedArm& arm : kShardedArms) {
    names.insert(arm.name);
    EXPECT_EQ(arm.role == ArmRole::kReference, &arm == &kShardedArms[0]) << arm.name;
  }
  EXPECT_EQ(names.size(), std::size(kShardedArms));
}

TEST(ShardedArms, AblationsLackOneIngredient) {
  for (const ShardedArm& arm : kShardedArms) {
    if (arm.role != ArmRole::kAblation) continue;
    const bool is_whole_schedule = std::string_view(arm.name) == "no-schedule";
    EXPECT_EQ(differences(arm), is_whole_schedule ? 2 : 1) << arm.name;
  }
}

TEST(ShardedFlags, ListIngredientsOfArm) {
  const auto laer = flags_of("laer");
  EXPECT_EQ(value_of(laer, "--expert-state"), "sharded");
  EXPECT_EQ(value_of(laer, "--placement"), "laer");
  EXPECT_EQ(value_of(laer, "--slots"), "8");
  EXPECT_EQ(value_of(laer, "--prefetch"), "2");
  EXPECT_EQ(value_of(laer, "--reshard"), "delayed");
  EXPECT_EQ(value_of(laer, "--domains"), "nodes.csv");
  EXPECT_THAT(laer, Not(Contains("--replan-every")));
  EXPECT_EQ(value_of(flags_of("no-prefetch"), "--prefetch"), "0");
  EXPECT_EQ(value_of(flags_of("reshard-inline"), "--reshard"), "inline");
  EXPECT_EQ(value_of(flags_of("eplb"), "--placement"), "eplb");
  EXPECT_THAT(flags_of("no-lite-routing"), Not(Contains("--domains")));
  EXPECT_EQ(value_of(flags_of("plan-once"), "--replan-every"), "14");
}

// moetrain refuses flags that do nothing in the mode of an arm.
TEST(ShardedFlags, ReplicatedArmsHaveNoFlagsOfSharding) {
  for (const char* name : {"static-ep", "frontier"}) {
    const auto flags = flags_of(name);
    EXPECT_EQ(value_of(flags, "--expert-state"), "replicated") << name;
    for (const char* flag : {"--prefetch", "--reshard", "--domains"}) {
      EXPECT_THAT(flags, Not(Contains(flag))) << name;
    }
  }
  for (const char* name : {"static-ep", "fsdp-ep"}) {
    EXPECT_THAT(flags_of(name), Not(Contains("--slots"))) << name;
    EXPECT_THAT(flags_of(name), Not(Contains("--replan-every"))) << name;
  }
  EXPECT_EQ(value_of(flags_of("frontier"), "--min-replicas"), "1");
}

TEST(ShardedFlags, RoutingIsByZipfOrByATrace) {
  const auto zipf = flags_of("laer", {.skew = 1.2, .order = 2});
  EXPECT_EQ(value_of(zipf, "--router-skew"), "1.2");
  EXPECT_EQ(value_of(zipf, "--router-skew-order"), "2");
  EXPECT_THAT(zipf, Not(Contains("--router-trace")));
  const auto trace = flags_of("laer", {.trace_file = "trace.csv", .trace_hold = 4});
  EXPECT_EQ(value_of(trace, "--router-trace"), "trace.csv");
  EXPECT_EQ(value_of(trace, "--router-trace-hold"), "4");
  EXPECT_THAT(trace, Not(Contains("--router-skew")));
}

TEST(ShardedSteps, ArmsPlanOnceBeforeTheWindow) {
  for (const uint64_t measured : {6u, 12u, 100u}) {
    const ShardedSteps steps = sharded_steps(measured);
    EXPECT_EQ(steps.last - steps.first, measured);
    EXPECT_LT(steps.plan_at, steps.first);
    EXPECT_GT(2 * steps.plan_at, steps.last) << "a second plan";
    EXPECT_GE(steps.plan_at, 8u) << "counts of five steps up to two before the plan's";
  }
}

TEST(ParseShape, TakesRanksAndSlots) {
  EXPECT_EQ(*parse_shape("4x8"), (ShardedShape{4, 8}));
  EXPECT_EQ(*parse_shape("3x6"), (ShardedShape{3, 6}));
  for (const char* text : {"", "4", "4x", "x8", "4x8x", "4y8", "-4x8", "4x8 "}) {
    EXPECT_THAT(parse_shape(text).error().message, HasSubstr("must be RANKSxSLOTS")) << text;
  }
  EXPECT_THAT(parse_shape("1x16").error().message, HasSubstr("2 to 8 ranks"));
  EXPECT_THAT(parse_shape("9x16").error().message, HasSubstr("2 to 8 ranks"));
  EXPECT_THAT(parse_shape("3x5").error().message, HasSubstr("3 ranks need 6 to 16 slots"));
  EXPECT_THAT(parse_shape("4x17").error().message, HasSubstr("4 ranks need 4 to 16 slots"));
}

TEST(TwoNodes, HaveHalfOfTheRanksEach) {
  EXPECT_EQ(two_nodes_csv(4), "rank,node\n0,0\n1,0\n2,1\n3,1\n");
  EXPECT_EQ(two_nodes_csv(3), "rank,node\n0,0\n1,1\n2,1\n");
}

}  // namespace
}  // namespace bench
