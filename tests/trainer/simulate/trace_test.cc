#include "trainer/simulate/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/simulate/random.h"

namespace moetrain::simulate {
namespace {

using testing::HasSubstr;

std::string error_of_trace(std::string_view text) {
  const auto trace = parse_trace(text, "t.csv");
  return trace.ok() ? "" : trace.error().message;
}

TEST(Trace, ReadsEvents) {
  const auto trace = parse_trace("0,add,a\n5,add,b-1\r\n\n7,remove,a\n7,add,a", "t.csv");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->names, (std::vector<std::string>{"a", "b-1"}));
  EXPECT_EQ(trace->end, 7000);
  EXPECT_EQ(trace->events, (std::vector<NodeEvent>{
                               {0, 0, true}, {5000, 1, true}, {7000, 0, false}, {7000, 0, true}}));
}

TEST(Trace, NamesWrongLine) {
  EXPECT_THAT(error_of_trace("0,add,a\n1,remove,b\n"), HasSubstr("t.csv:2: node b is removed"));
  EXPECT_THAT(error_of_trace("0,add,a\n1,add,a\n"), HasSubstr("t.csv:2: node a is added"));
  EXPECT_THAT(error_of_trace("0,add,a\n1,remove,a\n2,remove,a"),
              HasSubstr("t.csv:3: node a is removed"));
  EXPECT_THAT(error_of_trace("5,add,a\n4,add,b"), HasSubstr("t.csv:2: time 4 is before"));
  EXPECT_THAT(error_of_trace("0,add"), HasSubstr("t.csv:1: '0,add' is not"));
  EXPECT_THAT(error_of_trace("0,add,a,b"), HasSubstr("is not milliseconds"));
  EXPECT_THAT(error_of_trace("-1,add,a"), HasSubstr("time '-1'"));
  EXPECT_THAT(error_of_trace("1.5,add,a"), HasSubstr("time '1.5'"));
  EXPECT_THAT(error_of_trace("99999999999999999999,add,a"), HasSubstr("time '9999"));
  EXPECT_THAT(error_of_trace("8640000001,add,a"), HasSubstr("must be 0 to 8640000000"));
  EXPECT_THAT(error_of_trace("0,ADD,a"), HasSubstr("'ADD' is neither"));
  EXPECT_THAT(error_of_trace("0,add,"), HasSubstr("node ''"));
  EXPECT_THAT(error_of_trace("0,add,a b"), HasSubstr("node 'a b'"));
  EXPECT_THAT(error_of_trace("0,add," + std::string(129, 'x')), HasSubstr("a name is 1 to 128"));
  EXPECT_THAT(error_of_trace(""), HasSubstr("t.csv: no events"));
  EXPECT_THAT(error_of_trace("\n\n"), HasSubstr("no events"));
}

TEST(Trace, CappedNodesWaitForAPlace) {
  auto trace = parse_trace(
      "0,add,a\n0,add,b\n0,add,c\n0,add,d\n1,remove,c\n2,remove,a\n2,remove,d\n3,add,e\n"
      "4,remove,b\n5,add,a\n",
      "t.csv");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const Micros end = trace->end;
  cap_nodes(*trace, 2);
  // c and d are spares and leave before a place is free. Then e gets a place, and a on its return.
  EXPECT_EQ(trace->names, (std::vector<std::string>{"a", "b", "e"}));
  EXPECT_EQ(trace->events, (std::vector<NodeEvent>{{0, 0, true},
                                                   {0, 1, true},
                                                   {2000, 0, false},
                                                   {3000, 2, true},
                                                   {4000, 1, false},
                                                   {5000, 0, true}}));
  EXPECT_EQ(trace->end, end);
}

TEST(Trace, UnreachedCapChangesNothing) {
  auto trace = parse_trace("0,add,a\n5,add,b\n7,remove,a\n9,add,a\n", "t.csv");
  ASSERT_TRUE(trace.ok());
  NodeTrace capped = *trace;
  cap_nodes(capped, 2);
  EXPECT_EQ(capped, *trace);
}

// Random bytes give a valid trace or one short printable error message.
TEST(Trace, HostileBytes) {
  Random random(7);
  const std::string_view pieces[] = {"0,", "add", "remove", ",", "\n",   "a",     "b",   "1",
                                     "-",  "\r",  "9999",   "x", "\xff", "\x1b[", "1e9", " "};
  size_t good = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    if (round % 2 == 0) {
      for (uint64_t i = random.below(30); i > 0; --i) text += pieces[random.below(16)];
    } else {
      text = "0,add,a\n1,add,b\n3,remove,a\n4,add,a\n";
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    }
    const auto trace = parse_trace(text, "t.csv");
    if (!trace.ok()) {
      EXPECT_LT(trace.error().message.size(), 400U);
      EXPECT_TRUE(std::ranges::all_of(trace.error().message,
                                      [](unsigned char c) { return c >= 0x20 && c < 0x7f; }));
      continue;
    }
    ++good;
    std::vector<bool> there(trace->names.size());
    Micros before = 0;
    for (const NodeEvent& event : trace->events) {
      EXPECT_GE(event.at, before);
      EXPECT_NE(there.at(event.node), event.add);
      there[event.node] = event.add;
      before = event.at;
    }
  }
  EXPECT_GT(good, 100U);
}

TEST(Trace, SyntheticTracesAreRegularOrRandom) {
  SyntheticTrace options{
      .nodes = 10, .between_failures = 300 * kSecond, .nodes_min = 5, .duration = 3600 * kSecond};
  const auto regular = make_trace(options);
  ASSERT_TRUE(regular.ok());
  ASSERT_EQ(regular->events.size(), 15U);  // ten come, five go
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(regular->events[10 + i].at, static_cast<Micros>(i + 1) * 300 * kSecond);
    EXPECT_FALSE(regular->events[10 + i].add);
  }
  options = {.nodes = 50,
             .between_failures = kSecond,
             .exponential = true,
             .repair = 0,
             .duration = 20'000 * kSecond,
             .seed = 3};
  const auto random = make_trace(options);
  ASSERT_TRUE(random.ok());
  EXPECT_NEAR(static_cast<double>(random->events.size() - 50) / 2, 20'000, 600);  // 4 sigma
  EXPECT_EQ(*random, *make_trace(options));
  options.seed = 4;
  EXPECT_NE(*random, *make_trace(options));
}

TEST(Trace, RefusesInvalidOptions) {
  EXPECT_FALSE(make_trace({.nodes = 0, .between_failures = 1, .duration = 1}).ok());
  EXPECT_FALSE(make_trace({.nodes = 1, .between_failures = 0, .duration = 1}).ok());
  EXPECT_FALSE(make_trace({.nodes = 1, .between_failures = 1, .duration = 0}).ok());
  EXPECT_FALSE(make_trace({.nodes = 1, .between_failures = 1, .duration = kTraceMax + 1}).ok());
  EXPECT_FALSE(make_trace({.nodes = 1, .between_failures = 1, .duration = kTraceMax}).ok());
}

}  // namespace
}  // namespace moetrain::simulate
