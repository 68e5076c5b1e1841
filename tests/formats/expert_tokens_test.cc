#include "formats/expert_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt {
namespace {

using testing::HasSubstr;

std::vector<UnitSpec> units() {
  std::vector<UnitSpec> units(4);
  for (uint32_t i = 0; i < 3; ++i) {
    units[i].layer = i / 2;
    units[i].expert = i % 2;
  }
  return units;  // (0, 0), (0, 1), (1, 0), and one of no expert
}

std::string refusal(const std::vector<fb::ExpertTokens>& counts) {
  const auto checked = check_expert_tokens(counts, units());
  return checked.ok() ? "" : checked.error().message;
}

TEST(ExpertTokens, AreSortedAndFound) {
  const auto counts = check_expert_tokens({{1, 0, 7}, {0, 1, 5}}, units());
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(*counts, (ExpertTokenCounts{{0, 1, 5}, {1, 0, 7}}));
  EXPECT_EQ(tokens_of(*counts, 1, 0), 7u);
  EXPECT_EQ(tokens_of(*counts, 0, 0), std::nullopt);
  EXPECT_EQ(tokens_of(*counts, 2, 0), std::nullopt);
  EXPECT_TRUE(check_expert_tokens({}, units())->empty());
}

TEST(ExpertTokens, WhatMakesNoSenseIsRefusedAndNamed) {
  EXPECT_THAT(refusal({{0, 1, 5}, {0, 0, 5}, {0, 1, 6}}),
              HasSubstr("layer 0 expert 1: its tokens are given twice"));
  EXPECT_THAT(refusal({{1, 1, 5}}),
              HasSubstr("layer 1 expert 1: token counts of an expert that no unit has"));
  EXPECT_THAT(refusal({{4'000'000'000, 0, 5}}), HasSubstr("layer 4000000000 expert 0"));
  EXPECT_THAT(refusal(std::vector<fb::ExpertTokens>(kExpertTokensMax + 1)),
              HasSubstr("token counts of 65537 experts, the most is 65536"));
}

TEST(ExpertTokens, NeverGoDown) {
  const ExpertTokenCounts earlier = {{0, 1, 5}, {1, 0, 7}};
  EXPECT_TRUE(check_not_less(earlier, 10, {{0, 0, 1}, {0, 1, 5}, {1, 0, 8}}).ok());
  EXPECT_TRUE(check_not_less(earlier, 10, {{0, 0, 1}, {2, 0, 0}}).ok()) << "nothing to compare";
  const Status less = check_not_less(earlier, 10, {{0, 0, 1}, {1, 0, 6}});
  ASSERT_FALSE(less.ok());
  EXPECT_EQ(less.error().message,
            "layer 1 expert 0: 6 tokens, but 7 by step 10: counts are cumulative");
}

}  // namespace
}  // namespace ckpt
