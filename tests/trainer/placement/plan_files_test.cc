#include "trainer/placement/plan_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kLoads =
    "iteration,layer,e0,e1\n"
    "20,0,1,2\n"
    "20,1,3,4\r\n"
    "40,0,5,6\n"
    "40,1,7,8\n";

std::string loads_refusal(const std::string& text) {
  const auto loads = parse_loads_csv(text, "l.csv", std::nullopt);
  return loads.ok() ? "accepted" : loads.error().message;
}

std::string domains_refusal(const std::string& text) {
  const auto domains = parse_domains(text, "d.csv", 3);
  return domains.ok() ? "accepted" : domains.error().message;
}

TEST(PlanFilesTest, ReadsOneIteration) {
  EXPECT_THAT(*parse_loads_csv(kLoads, "l.csv", std::nullopt),
              ElementsAre(ElementsAre(5, 6), ElementsAre(7, 8)));
  EXPECT_THAT(*parse_loads_csv(kLoads, "l.csv", 20),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
  const auto missing = parse_loads_csv(kLoads, "l.csv", 30);
  EXPECT_EQ(missing.error().code, ckpt::ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("l.csv: there is no iteration 30"));
}

TEST(PlanFilesTest, NamesWrongLine) {
  const std::string header = "iteration,layer,e0,e1\n";
  EXPECT_THAT(loads_refusal(header + "1,0,5\n"), HasSubstr("l.csv line 2: e1 is missing"));
  EXPECT_THAT(loads_refusal(header + "1,0,5,6\n1,1,5,6\n2,0,5,6\n"),
              HasSubstr("iteration 2 has 1 layers, the first one 2"));
}

TEST(PlanFilesTest, ReadsLoadsOfACommandLine) {
  EXPECT_THAT(*parse_loads("7,0,3", "--loads"), ElementsAre(7, 0, 3));
  EXPECT_THAT(parse_loads("7,,3", "--loads").error().message,
              HasSubstr("--loads: the load of expert 1 is ''"));
  EXPECT_FALSE(parse_loads("7,", "--loads").ok());
  EXPECT_FALSE(parse_loads("-7", "--loads").ok());
}

TEST(PlanFilesTest, EveryRankHasOneDomain) {
  EXPECT_THAT(*parse_domains("rank,node\n2,b\n0,a\n1,b\n", "d.csv", 3), ElementsAre(0, 1, 1));
  EXPECT_THAT(*parse_domains("2,0\n0,1\n1,0", "d.csv", 3), ElementsAre(0, 1, 1));
  EXPECT_THAT(domains_refusal("0,a\n1,a\n"), HasSubstr("d.csv: rank 2 of 3 is missing"));
  EXPECT_THAT(domains_refusal("0,a\n1,a\n1,b\n"), HasSubstr("line 3: rank 1 has a line already"));
  EXPECT_THAT(domains_refusal("0,a\n3,a\n"), HasSubstr("there is no rank 3, only 0 to 2"));
  EXPECT_THAT(domains_refusal("0,\n"), HasSubstr("rank 0 has no node"));
  EXPECT_THAT(domains_refusal("0\n"), HasSubstr("rank 0 has no node"));
  EXPECT_THAT(domains_refusal("x,a\n"), HasSubstr("the rank is 'x'"));
  EXPECT_THAT(domains_refusal("0,a,b\n"), HasSubstr("must be rank,node"));
}

TEST(PlanFilesTest, NodeFileMayOmitRanks) {
  EXPECT_THAT(*parse_nodes("rank,node\n5,b\n0,a\n1,b\n", "n.csv", 8),
              ElementsAre(1, 0, kOwnNode, kOwnNode, kOwnNode, 0));
  EXPECT_THAT(*parse_nodes("rank,node\n", "n.csv", 8), testing::IsEmpty());
  EXPECT_THAT(parse_nodes("rank,node\n0,a\n8,a\n", "n.csv", 8).error().message,
              HasSubstr("n.csv line 3: there is no rank 8, only 0 to 7"));
  EXPECT_THAT(parse_nodes("0,a\n0,a\n", "n.csv", 8).error().message,
              HasSubstr("n.csv line 2: rank 0 has a line already"));
}

// Random bytes give consistent values or an error message (asan and ubsan watch).
TEST(PlanFilesTest, ParsesHostileTextSafely) {
  const uint32_t seed = 77;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr std::string_view kDomains = "rank,node\n0,a\n1,b\n2,a\n";
  constexpr std::string_view kLetters = "0123456789,\n-e\r x";
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text(round % 2 == 0 ? kLoads : kDomains);
    for (uint32_t i = random() % 5; i < 4 && !text.empty(); ++i) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, 1 + random() % 9);
      if (text.empty()) break;
      text[at % text.size()] =
          random() % 9 == 0 ? static_cast<char>(random()) : kLetters[random() % kLetters.size()];
    }
    const auto loads = parse_loads_csv(text, "t.csv", std::nullopt);
    if (loads.ok()) {
      ++accepted;
      for (const auto& layer : *loads) EXPECT_EQ(layer.size(), loads->front().size());
    } else {
      EXPECT_THAT(loads.error().message, HasSubstr("t.csv line"));
    }
    const auto domains = parse_domains(text, "t.csv", 3);
    if (domains.ok()) {
      ++accepted;
      EXPECT_EQ(domains->size(), 3u);
    } else {
      EXPECT_THAT(domains.error().message, HasSubstr("t.csv"));
    }
  }
  EXPECT_GT(accepted, 1'000);
}

}  // namespace
}  // namespace moetrain
