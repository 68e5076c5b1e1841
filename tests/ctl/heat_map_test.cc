#include "client/ctl/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace ckptctl {
namespace {

using testing::HasSubstr;
using testing::Not;

Json expert(int number, Json version, Json staleness, Json lost) {
  return {{"expert", number},
          {"version_step", std::move(version)},
          {"staleness", std::move(staleness)},
          {"lost_tokens", std::move(lost)}};
}

// JSON as the daemon's answers are parsed: numbers without a sign are unsigned.
Json as_parsed(const Json& document) { return Json::parse(document.dump()); }

Json small() {
  Json document{{"run", "tiny"}, {"lineage", 2}, {"step", 20}};
  document["layers"] = Json::array();
  document["layers"].push_back(
      {{"layer", 1}, {"experts", {expert(0, 20, 0, 0), expert(1, 10, 10, 700)}}});
  document["layers"].push_back(
      {{"layer", 11},
       {"experts", {expert(0, 15, 5, nullptr), expert(2, nullptr, nullptr, nullptr)}}});
  return as_parsed(document);
}

// `layers` x `experts`; every value is the number of its expert.
Json wide(int layers, int experts) {
  Json document{{"run", "wide"}, {"lineage", 1}, {"step", 1000}};
  document["layers"] = Json::array();
  for (int layer = 0; layer < layers; ++layer) {
    Json list = Json::array();
    for (int number = 0; number < experts; ++number) {
      list.push_back(expert(number, 1000 - number, number, number));
    }
    document["layers"].push_back({{"layer", layer}, {"experts", list}});
  }
  return as_parsed(document);
}

TEST(HeatLevel, ScalesFromZeroToMaximum) {
  EXPECT_EQ(heat_level(0, 0), 0);
  EXPECT_EQ(heat_level(0, 700), 0);
  EXPECT_EQ(heat_level(1, 700), 1);
  EXPECT_EQ(heat_level(100, 700), 1);
  EXPECT_EQ(heat_level(101, 700), 2);
  EXPECT_EQ(heat_level(700, 700), 7);
  EXPECT_EQ(heat_level(1, 1), 7);
  EXPECT_EQ(heat_level(UINT64_MAX - 1, UINT64_MAX), 7);
}

TEST(HeatMap, TitleCountsExpertsNotShown) {
  Json document{{"run", "odd"}, {"lineage", 1}, {"step", 5}};
  document["layers"] = Json::array();
  document["layers"].push_back(
      {{"layer", 0}, {"experts", {expert(1, 5, 0, 0), expert(65'536, 5, 0, 0)}}});
  const HeatMap map = heat_map(as_parsed(document), HeatBy::kStaleness);
  EXPECT_EQ(map.experts, 2u);
  EXPECT_THAT(map.title, HasSubstr("(1 expert with a number of 65536 or more not shown)"));
  EXPECT_THAT(heat_map(small(), HeatBy::kStaleness).title, Not(HasSubstr("not shown")));
}

TEST(HeatMap, WithoutColourUsesCharacters) {
  EXPECT_EQ(heat_map_text(heat_map(small(), HeatBy::kLostTokens), {.columns = 60, .colour = false}),
            "tiny~2@20: tokens each expert would lose in a restore\n"
            "layer experts 0-2\n"
            "    1 ..@@\n"
            "   11 ?\?  !!\n"
            ".. 0  :: to 100  -- to 200  == to 300  ++ to 400  ** to 500\n"
            "%% to 600  @@ to 700  ?? not counted  !! no version  tokens\n");
  EXPECT_THAT(
      heat_map_text(heat_map(small(), HeatBy::kStaleness), {.columns = 60, .colour = false}),
      HasSubstr("    1 ..@@\n   11 ++  !!\n"));
}

// An expert may have lost tokens and have no version in the view.
TEST(HeatMap, ShowsTokensLostSoFar) {
  Json document = small();
  document["layers"][0]["experts"][0]["lost_so_far"] = 70u;
  document["layers"][0]["experts"][1]["lost_so_far"] = 0u;
  document["layers"][1]["experts"][0]["lost_so_far"] = nullptr;
  document["layers"][1]["experts"][1]["lost_so_far"] = 10u;
  const HeatMap map = heat_map(as_parsed(document), HeatBy::kLostSoFar);
  EXPECT_EQ(heat_map_text(map, {.columns = 60, .colour = false}),
            "tiny~2@20: tokens each expert has lost so far\n"
            "layer experts 0-2\n"
            "    1 @@..\n"
            "   11 ?\?  ::\n"
            ".. 0  :: to 10  -- to 20  == to 30  ++ to 40  ** to 50\n"
            "%% to 60  @@ to 70  ?? not counted  tokens\n");
  EXPECT_THAT(heat_map_svg(map), HasSubstr("<title>layer 11 expert 2: 10 tokens</title>"));
}

TEST(HeatMap, ColourCellsAreBackgrounds) {
  const std::string text =
      heat_map_text(heat_map(small(), HeatBy::kLostTokens), {.columns = 60, .colour = true});
  EXPECT_THAT(text, HasSubstr("    1 \x1b[48;5;53m  \x1b[0m\x1b[48;5;226m  \x1b[0m\n"));
  EXPECT_THAT(text, HasSubstr("?\?  !!"));
}

TEST(HeatMap, FitsColumnsAndShowsEveryExpert) {
  for (const int columns : {24, 40, 80, 200}) {
    const HeatMap map = heat_map(wide(3, 256), HeatBy::kStaleness);
    std::istringstream lines(heat_map_text(map, {.columns = columns, .colour = false}));
    std::string line;
    size_t cells = 0;
    while (std::getline(lines, line)) {
      EXPECT_LE(line.size(), static_cast<size_t>(columns));
      if (line.rfind("    0 ", 0) == 0) cells += line.size() - 6;
    }
    EXPECT_EQ(cells, 256u) << columns << " columns";
  }
}

TEST(HeatMap, LongTitleWraps) {
  HeatMap map;
  map.title = std::string(30, 'r') + "~1@5: tokens each expert would lose";
  EXPECT_EQ(heat_map_text(map, {.columns = 24, .colour = false}),
            "rrrrrrrrrrrrrrrrrrrrrrrr\n"
            "rrrrrr~1@5: tokens each\n"
            "expert would lose\n"
            "no experts\n");
}

// A full checkpoint leaves all cells equal.
TEST(HeatMap, SummarisesEqualCells) {
  Json document{{"run", "tiny"}, {"lineage", 1}, {"step", 6}};
  document["layers"] = {{{"layer", 0}, {"experts", {expert(0, 6, 0, 0), expert(1, 6, 0, 0)}}}};
  const HeatMap map = heat_map(as_parsed(document), HeatBy::kLostTokens);
  EXPECT_EQ(heat_map_text(map, {.columns = 100, .colour = false}),
            "tiny~1@6: tokens each expert would lose in a restore\n"
            "none of 2 experts in 1 layer would lose a token; --list shows the version "
            "of each\n");
  EXPECT_THAT(heat_map_svg(map), HasSubstr("none of 2 experts in 1 layer would lose a token"));
  EXPECT_THAT(heat_map_text(heat_map(as_parsed(document), HeatBy::kStaleness), {}),
              HasSubstr("none of 2 experts in 1 layer is behind"));
  for (Json& one : document["layers"][0]["experts"]) one["lost_tokens"] = nullptr;
  EXPECT_THAT(heat_map_text(heat_map(as_parsed(document), HeatBy::kLostTokens), {}),
              HasSubstr("no tokens are counted for 2 experts"));
  document["layers"][0]["experts"][0]["lost_tokens"] = 5;
  EXPECT_EQ(heat_map(as_parsed(document), HeatBy::kLostTokens).alike, "");
}

TEST(HeatMap, PipeGetsUnwrappedSentences) {
  Json document{{"run", "tiny"}, {"lineage", 1}, {"step", 6}};
  document["layers"] = {{{"layer", 0}, {"experts", {expert(0, 6, 0, 0), expert(1, 6, 0, 0)}}}};
  const HeatMap map = heat_map(as_parsed(document), HeatBy::kLostTokens);
  EXPECT_EQ(heat_map_text(map, {.columns = 24, .wraps_text = false}),
            "tiny~1@6: tokens each expert would lose in a restore\n" + map.alike + "\n");
}

TEST(HeatMap, RunWithoutExpertsShowsNoExperts) {
  const Json document{{"run", "dense"}, {"lineage", 1}, {"step", 5}, {"layers", Json::array()}};
  const HeatMap map = heat_map(document, HeatBy::kLostTokens);
  EXPECT_EQ(heat_map_text(map, {}),
            "dense~1@5: tokens each expert would lose in a restore\nno experts\n");
  EXPECT_THAT(heat_map_svg(map), HasSubstr("</svg>"));
}

TEST(HeatMap, OutOfRangeNumberIsIgnored) {
  Json document = small();
  document["layers"][0]["experts"].push_back(expert(2'000'000'000, 1, 19, 5));
  document = as_parsed(document);
  EXPECT_EQ(heat_map(document, HeatBy::kStaleness).experts, 3u);
}

TEST(HeatMapSvg, HasLabelledCellForEachExpert) {
  Json document = small();
  document["run"] = "a<b";
  const std::string svg = heat_map_svg(heat_map(document, HeatBy::kLostTokens));
  EXPECT_THAT(svg, HasSubstr("<title>layer 1 expert 1: 700 tokens</title>"));
  EXPECT_THAT(svg, HasSubstr("fill=\"#fde725\"><title>layer 1 expert 1"));
  EXPECT_THAT(svg, HasSubstr("layer 11 expert 0: not counted"));
  EXPECT_THAT(svg, HasSubstr("layer 11 expert 2: no version"));
  EXPECT_THAT(svg, Not(HasSubstr("layer 11 expert 1"))) << "there is no such expert";
  EXPECT_THAT(svg, HasSubstr("a&lt;b~2@20"));
  EXPECT_THAT(svg, Not(HasSubstr("a<b")));
}

}  // namespace
}  // namespace ckptctl
