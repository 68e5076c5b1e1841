// Refusals of the options of partial checkpoints, and their effect on the selection of experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "trainer/checkpoint/partial_checkpoint.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

constexpr uint32_t kExperts = 6;
const ExpertGrid kGrid{2, kExperts};

// If survivors continue, an expert on one rank alone is worth more saves than an expert with
// replicas. If all ranks roll back anyway, replicas do not matter.
TEST(PartialCheckpointTest, ReplicasLowerRiskOnlyIfSurvivorsContinue) {
  const auto units = state_units({.layers = kGrid.layers, .experts = kExperts});
  const LayerSlots layer = {{0, 1, 2}, {0, 1, 3}, {0, 4, 5}};  // three, two and one holder
  const ComputePlacement placement = *make_placement({layer, layer}, kExperts, 3);
  for (const bool survivors_continue : {false, true}) {
    PartialCheckpoint partial(
        units, placement, {.k = 1, .staleness_max = 30, .survivors_continue = survivors_continue});
    ExpertStamps stamps(kGrid);
    std::vector<int64_t> routed(kGrid.size(), 0);
    const std::vector<int64_t> updates(kGrid.size(), 0);
    std::vector<int> saves(kExperts);
    for (uint64_t step = 1; step <= 60; ++step) {
      for (int64_t& tokens : routed) tokens += 10;
      const auto plan = partial.next(step, {routed, updates}, false, stamps);
      if (step == 1) continue;  // full
      for (const uint32_t expert : plan.experts) ++saves[expert % kExperts];
    }
    if (survivors_continue) {
      EXPECT_LT(saves[0], saves[3]);
      EXPECT_LT(saves[1], saves[3]);
    } else {
      EXPECT_LE(*std::ranges::max_element(saves) - *std::ranges::min_element(saves), 2);
    }
  }
}

TEST(PartialOptionsTest, NamesInvalidFlag) {
  EXPECT_TRUE(validate(PartialOptions{}, 8).ok());
  EXPECT_THAT(validate(PartialOptions{.k = 9}, 8).error().message,
              HasSubstr("--experts-per-checkpoint 9: 9 experts of each layer"));
  EXPECT_THAT(validate(PartialOptions{.k = 2, .staleness_max = 3}, 8).error().message,
              HasSubstr("8 experts, 2 at a time, take 4"));
  EXPECT_THAT(validate(PartialOptions{.k = 1, .plt_budget = 1.5}, 8).error().message,
              HasSubstr("--plt-budget 1.5"));
  EXPECT_THAT(validate(PartialOptions{.plt_budget = std::nan("")}, 8).error().message,
              HasSubstr("--plt-budget nan"));
  EXPECT_TRUE(validate(PartialOptions{.k = 2, .k_snapshot = 2}, 8).ok());
  EXPECT_TRUE(validate(PartialOptions{.k = 2, .k_snapshot = kAllExperts}, 8).ok());
  EXPECT_TRUE(validate(PartialOptions{.k_snapshot = 8}, 8).ok()) << "none is left to be kept";
  EXPECT_TRUE(validate(PartialOptions{.k_auto = true, .k_snapshot = 3}, 8).ok());
  EXPECT_THAT(validate(PartialOptions{.k_auto = true, .k_snapshot = 9}, 8).error().message,
              HasSubstr("at least --experts-per-checkpoint (auto), and at most the 8"));
  for (const PartialOptions& wrong :
       {PartialOptions{.k = 2, .k_snapshot = 1}, PartialOptions{.k = 2, .k_snapshot = 9},
        PartialOptions{.k = 0, .k_snapshot = 4}}) {
    EXPECT_THAT(validate(wrong, 8).error().message, HasSubstr("--experts-per-snapshot"));
  }
  const PartialOptions automatic{.k = 2, .k_snapshot = kAllExperts, .k_snapshot_auto = true};
  EXPECT_TRUE(validate(automatic, 8).ok());
  const PartialOptions no_others{.k_snapshot = kAllExperts, .k_snapshot_auto = true};
  EXPECT_THAT(validate(no_others, 8).error().message, HasSubstr("--experts-per-snapshot auto"));
  EXPECT_THAT(parse_partial_parts("moments").error().message, HasSubstr("'moments'"));
}

}  // namespace
}  // namespace moetrain
