#include "formats/expert_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt {
namespace {

using testing::HasSubstr;
using Counts = std::vector<fb::ExpertTokens>;

std::vector<UnitSpec> units() {
  std::vector<UnitSpec> units(4);
  for (uint32_t i = 0; i < 3; ++i) {
    units[i].layer = i / 2;
    units[i].expert = i % 2;
  }
  return units;  // (0, 0), (0, 1), (1, 0), and one of no expert
}

std::string refusal(const Counts& tokens, const Counts& lost = {}) {
  const auto checked = check_expert_tokens(tokens, lost, units());
  return checked.ok() ? "" : checked.error().message;
}

TEST(ExpertTokens, AreSortedAndFound) {
  const auto counts = check_expert_tokens({{1, 0, 7}, {0, 1, 5}}, {}, units());
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(*counts, (ExpertTokenCounts{{0, 1, 5}, {1, 0, 7}}));
  EXPECT_EQ(counts_of(*counts, 1, 0)->tokens, 7u);
  EXPECT_EQ(counts_of(*counts, 0, 0), std::nullopt);
  EXPECT_EQ(counts_of(*counts, 2, 0), std::nullopt);
  EXPECT_TRUE(check_expert_tokens({}, {}, units())->empty());
}

TEST(ExpertTokens, LostTokensAreKeptWithCounts) {
  const Counts tokens = {{1, 0, 7}, {0, 1, 5}, {0, 0, 9}};
  const auto counts = check_expert_tokens(tokens, {{1, 0, 7}, {0, 0, 2}}, units());
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(*counts, (ExpertTokenCounts{{0, 0, 9, 2}, {0, 1, 5, 0}, {1, 0, 7, 7}}));
  EXPECT_EQ((*counts)[0].held(), 7u);
  EXPECT_EQ(lost_tokens(*counts), 9u);
  EXPECT_EQ(*expert_token_counts(tokens_to_fb(*counts), lost_to_fb(*counts)), *counts);
  EXPECT_EQ(lost_to_fb(*counts).size(), 2u) << "nothing is said of who lost nothing";
  const uint64_t most = ~uint64_t{0};
  const auto whole = check_expert_tokens({{0, 0, most}, {0, 1, 1}}, {{0, 0, most}}, units());
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(lost_tokens(*whole), most);
}

TEST(ExpertTokens, InvalidCountsAreRefusedNamingExpert) {
  EXPECT_THAT(refusal({{0, 1, 5}, {0, 0, 5}, {0, 1, 6}}),
              HasSubstr("layer 0 expert 1: its tokens are given twice"));
  EXPECT_THAT(refusal({{1, 1, 5}}),
              HasSubstr("layer 1 expert 1: token counts of an expert that no unit has"));
  EXPECT_THAT(refusal({{4'000'000'000, 0, 5}}), HasSubstr("layer 4000000000 expert 0"));
  EXPECT_THAT(refusal(std::vector<fb::ExpertTokens>(kExpertTokensMax + 1)),
              HasSubstr("tokens of 65537 experts, the most is 65536"));
}

TEST(ExpertTokens, InvalidLostCountsAreRefusedNamingExpert) {
  const Counts tokens = {{0, 0, 5}, {1, 0, 7}};
  EXPECT_EQ(refusal(tokens, {{0, 0, 5}, {1, 0, 7}}), "");
  EXPECT_EQ(refusal(tokens, {{0, 0, 6}}), "layer 0 expert 0: 6 tokens lost of 5");
  EXPECT_EQ(refusal(tokens, {{1, 0, static_cast<uint64_t>(-1)}}),
            "layer 1 expert 0: 18446744073709551615 tokens lost of 7");
  EXPECT_EQ(refusal(tokens, {{1, 0, 2}, {1, 0, 2}}),
            "layer 1 expert 0: its lost tokens are given twice");
  EXPECT_EQ(refusal(tokens, {{0, 1, 1}}),
            "layer 0 expert 1: its lost tokens are given, but not its tokens");
  EXPECT_EQ(refusal(tokens, {{0, 0, 1}, {9, 9, 0}}),
            "layer 9 expert 9: its lost tokens are given, but not its tokens");
  EXPECT_EQ(refusal({}, {{0, 0, 0}}),
            "layer 0 expert 0: its lost tokens are given, but not its tokens");
  EXPECT_EQ(refusal(tokens, Counts(kExpertTokensMax + 1)),
            "lost tokens of 65537 experts, the most is 65536");
  const uint64_t most = ~uint64_t{0};
  EXPECT_EQ(refusal({{0, 0, most}, {0, 1, 1}}, {{0, 0, most}, {0, 1, 1}}),
            "layer 0 expert 1: with its 1 lost tokens their sum exceeds 64 bits");
}

TEST(ExpertTokens, DecreasingCountsAreRefused) {
  const ExpertTokenCounts earlier = {{0, 1, 5}, {1, 0, 7}};
  EXPECT_TRUE(check_not_less(earlier, 10, {{0, 0, 1}, {0, 1, 5}, {1, 0, 8}}).ok());
  EXPECT_TRUE(check_not_less(earlier, 10, {{0, 0, 1}, {2, 0, 0}}).ok()) << "nothing to compare";
  const Status less = check_not_less(earlier, 10, {{0, 0, 1}, {1, 0, 6}});
  ASSERT_FALSE(less.ok());
  EXPECT_EQ(less.error().message,
            "layer 1 expert 0: 6 tokens, but 7 by step 10: counts are cumulative");
}

TEST(ExpertTokens, DecreasingLostCountsAreRefused) {
  const ExpertTokenCounts earlier = {{0, 1, 5, 2}, {1, 0, 7, 3}};
  EXPECT_TRUE(check_not_less(earlier, 10, {{0, 1, 5, 2}, {1, 0, 8, 4}}).ok());
  EXPECT_TRUE(check_not_less(earlier, 10, {{0, 1, 5, 0}, {1, 0, 8, 0}}).ok()) << "nobody counts";
  const Status less = check_not_less(earlier, 10, {{0, 1, 9, 3}, {1, 0, 9, 2}});
  ASSERT_FALSE(less.ok());
  EXPECT_EQ(less.error().message,
            "layer 1 expert 0: 2 lost tokens, but 3 by step 10: counts are cumulative");
}

}  // namespace
}  // namespace ckpt
