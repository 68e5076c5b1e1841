#include "trainer/placement/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<LayerSlots> kLayers = {{{0, 1}, {0, 2}}};

PlacementRequest request() { return {.loads = {{20, 50, 10}}, .ranks = 2, .slots_per_rank = 2}; }

TEST(PictureTest, DrawsEveryRankWithItsSlotsAndLoad) {
  const auto judgement = judge(kLayers, request());
  ASSERT_TRUE(judgement.ok());
  const std::string text =
      placement_picture(kLayers[0], judgement->layers[0], {.columns = 46, .unicode = false});
  // 60 and 20 tokens, 40 are the mean: bars of 20 of 24 cells' worth, a mark at two thirds.
  EXPECT_THAT(text, HasSubstr("rank    0  0 1  "));
  EXPECT_THAT(text, HasSubstr(" 1.50\n"));
  EXPECT_THAT(text, HasSubstr(" 0.50\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '|'), 3) << "a legend and two bars";
  EXPECT_THAT(text, testing::StartsWith("     rank  experts tokens; | mean 40"));
  EXPECT_GT(std::count(text.begin(), text.end(), '#'), 20);
  const std::string one = placement_picture(kLayers[0], judgement->layers[0],
                                            {.columns = 46, .unicode = true, .ranks_max = 1});
  EXPECT_THAT(one, HasSubstr("the 1 most loaded of 2 ranks"));
  EXPECT_THAT(one, Not(HasSubstr("rank    1")));
}

TEST(PictureTest, ReportsBalanceRecoveryAndMoves) {
  PlacementRequest with_current = request();
  with_current.current = {{{0}, {2}}};
  const std::string text = judgement_text(*judge(kLayers, with_current), with_current);
  EXPECT_THAT(text, HasSubstr("max/mean  1.5000"));
  EXPECT_THAT(text, HasSubstr("1: 0.0000"));
  EXPECT_THAT(text, HasSubstr("to move   2 replicas"));
}

TEST(PictureTest, SvgHasAPartForEverySlot) {
  const std::string svg = placement_svg(kLayers[0], {20, 50, 10}, "a layer");
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("rank 0, expert 1: 1.25 of the mean"));
  EXPECT_THAT(svg, HasSubstr("rank 1, expert 2: 0.25 of the mean"));
  size_t parts = 0;
  for (size_t at = 0; (at = svg.find("<title>", at)) != std::string::npos; ++at) ++parts;
  EXPECT_EQ(parts, 4u);
}

// Expert 0 has a replica on each rank: these have 60 and 20 tokens.
TEST(PictureTest, SvgHasAxesLegendAndNumbers) {
  const std::string svg = placement_svg(kLayers[0], {20, 50, 10}, "a layer");
  for (const char* words :
       {">tokens<", ">rank<", ">mean 40<", ">40<", ">0<", "a replica of an expert",
        "above a column: its load as a part of the mean"}) {
    EXPECT_THAT(svg, HasSubstr(words));
  }
  EXPECT_THAT(svg, testing::ContainsRegex("class=\"of-mean\">1.50<"));
  EXPECT_THAT(svg, testing::ContainsRegex("class=\"of-mean\">0.50<"));
  EXPECT_THAT(svg, testing::ContainsRegex("class=\"expert\">2<"));
  EXPECT_THAT(placement_svg(kLayers[0], {0, 0, 0}, "a layer"),
              HasSubstr("experts (no tokens counted)"));
}

// Rank 0 has 70 of 80 tokens, then 45.
LayerChange change() {
  return {.loads = {20, 50, 10}, .before = {{0, 1}, {2}}, .after = {{0, 1}, {1, 2}}};
}

TEST(PictureTest, DrawsAChangeOnOneScale) {
  const std::string text = change_picture(change(), {.columns = 46, .unicode = false});
  EXPECT_THAT(text, testing::StartsWith("before:\n"));
  const size_t after = text.find("after:\n");
  ASSERT_NE(after, std::string::npos);
  EXPECT_THAT(text.substr(0, after), HasSubstr(" 1.75\n"));
  EXPECT_THAT(text.substr(after), HasSubstr(" 1.12\n"));
  const auto bar_of_rank_0 = [](const std::string& part) {
    return std::count(part.begin(), part.begin() + static_cast<ptrdiff_t>(part.find(" 1.")), '#');
  };
  // A full bar is 70 tokens; 45 tokens are two thirds of it, although no rank has more later.
  EXPECT_GT(bar_of_rank_0(text.substr(0, after)), bar_of_rank_0(text.substr(after)) + 5);
}

TEST(PictureTest, SvgOfAChangeHasBothPlacements) {
  const std::string svg = change_svg(change(), "a layer");
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  const size_t after = svg.find(">after<");
  ASSERT_LT(svg.find(">before<"), after);
  EXPECT_THAT(svg.substr(0, after), HasSubstr("rank 0, expert 1: 1.25 of the mean"));
  EXPECT_THAT(svg.substr(after), HasSubstr("rank 1, expert 1: 0.62 of the mean"));
  size_t parts = 0;
  for (size_t at = 0; (at = svg.find("<title>", at)) != std::string::npos; ++at) ++parts;
  EXPECT_EQ(parts, 7u);
}

}  // namespace
}  // namespace moetrain
