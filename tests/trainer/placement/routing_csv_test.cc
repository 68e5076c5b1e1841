#include "trainer/placement/routing_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kGood =
    "iteration,layer,e0,e1\n"
    "20,0,1,2\n"
    "20,1,3,4\r\n"
    "\n"
    "40,0,5,6\n"
    "40,1,7,8";

std::string refusal(const std::string& text) {
  RoutingCsv csv(text, "l.csv");
  for (;;) {
    const auto sample = csv.next();
    if (!sample.ok()) return sample.error().message;
    if (!*sample) return "accepted";
  }
}

TEST(RoutingCsvTest, ReadsSampleBySample) {
  RoutingCsv csv(kGood, "l.csv");
  const auto first = csv.next();
  ASSERT_TRUE(first.ok() && *first);
  EXPECT_EQ(csv.experts(), 2u);
  EXPECT_EQ((*first)->iteration, 20u);
  EXPECT_THAT((*first)->layers, ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
  const auto second = csv.next();
  ASSERT_TRUE(second.ok() && *second);
  EXPECT_EQ((*second)->iteration, 40u);
  EXPECT_THAT((*second)->layers, ElementsAre(ElementsAre(5, 6), ElementsAre(7, 8)));
  for (int again = 0; again < 2; ++again) {
    const auto end = csv.next();
    ASSERT_TRUE(end.ok());
    EXPECT_FALSE(end->has_value());
  }
}

TEST(RoutingCsvTest, NamesWrongLine) {
  const std::string header = "iteration,layer,e0,e1\n";
  EXPECT_THAT(refusal(""), HasSubstr("l.csv line 0: is empty"));
  EXPECT_THAT(refusal("a,b\n"), HasSubstr("line 1: must begin with iteration,layer"));
  EXPECT_THAT(refusal("1,0,5,6\n"), HasSubstr("line 1: must begin with iteration,layer"));
  EXPECT_THAT(refusal("iteration,layer\n"), HasSubstr("has no experts"));
  EXPECT_THAT(refusal("iteration,layer,e1\n"), HasSubstr("column 'e1' must be e0"));
  EXPECT_THAT(refusal(header), HasSubstr("no samples follow"));
  EXPECT_THAT(refusal(header + "1,0,5\n"), HasSubstr("line 2: e1 is missing"));
  EXPECT_THAT(refusal(header + "1,0,5,6,7\n"), HasSubstr("more than 2 experts"));
  EXPECT_THAT(refusal(header + "1,0,5,-6\n"), HasSubstr("e1 is '-6', which is no count"));
  EXPECT_THAT(refusal(header + "1,0,5,\x01\n"), HasSubstr("e1 is '\\x01'"));
  EXPECT_THAT(refusal(header + "1,0,5,99999999999999999999\n"), HasSubstr("no count"));
  EXPECT_THAT(refusal(header + "1,0,5,281474976710657\n"), HasSubstr("at most 281474976710656"));
  EXPECT_THAT(refusal(header + "1,1,5,6\n"), HasSubstr("layer 1 of iteration 1 is not"));
  EXPECT_THAT(refusal(header + "1,0,5,6\n1,0,5,6\n"), HasSubstr("line 3: layer 0 of iteration 1"));
  EXPECT_THAT(refusal(header + "2,0,5,6\n1,0,5,6\n"), HasSubstr("line 3: iteration 1 after 2"));
}

// A missing line, anywhere, means a truncated file.
TEST(RoutingCsvTest, EverySampleHasAllLayers) {
  const std::string header = "iteration,layer,e0\n";
  EXPECT_THAT(refusal(header + "1,0,5\n1,1,5\n2,0,5\n"),
              HasSubstr("iteration 2 has 1 layers, the first one 2"));
  EXPECT_THAT(refusal(header + "1,0,5\n1,1,5\n2,0,5\n3,0,5\n3,1,5\n"),
              HasSubstr("iteration 2 has 1 layers, the first one 2"));
}

// Random bytes give samples of one shape or an error message (asan and ubsan watch).
TEST(RoutingCsvTest, ParsesHostileTextSafely) {
  const uint32_t seed = 41;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr std::string_view kLetters = "0123456789,\n\r-eil x";
  for (int round = 0; round < 20'000; ++round) {
    std::string text(kGood);
    for (uint32_t i = random() % 4; i < 4; ++i) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, 1 + random() % 9);
      if (text.empty()) break;
      text[at % text.size()] = kLetters[random() % kLetters.size()];
    }
    RoutingCsv csv(text, "t.csv");
    size_t layers = 0;
    for (;;) {
      const auto sample = csv.next();
      if (!sample.ok()) {
        EXPECT_THAT(sample.error().message, HasSubstr("t.csv line"));
        break;
      }
      if (!*sample) break;
      if (layers == 0) layers = (*sample)->layers.size();
      ASSERT_EQ((*sample)->layers.size(), layers);
      for (const auto& tokens : (*sample)->layers) ASSERT_EQ(tokens.size(), csv.experts());
    }
  }
}

}  // namespace
}  // namespace moetrain
