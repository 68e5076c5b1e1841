#include "trainer/elastic/schedule_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/model/step_profile.h"

namespace moetrain {
namespace {

using nlohmann::json;

constexpr auto number(Activity activity) { return static_cast<int64_t>(activity); }

TEST(ScheduleTrace, IsAChromeTraceOfAllRanks) {
  ScheduleTrace trace;
  trace.add({.rank = 1, .step = 4},
            {.spans = {{number(Activity::kSubmitRestore), 0, 3, 7'000, 7'000},
                       {number(Activity::kRestore), 1, 3, 8'000, 10'500}},
             .left_out = 2});
  trace.add({.rank = 0, .step = 4}, {.spans = {{number(Activity::kTokens), 0, 0, 5'000, 6'000}}});
  const json document = json::parse(trace.json());
  EXPECT_EQ(document.at("otherData").at("spans_left_out"), 2);
  const json& events = document.at("traceEvents");
  ASSERT_EQ(events.size(), 2u * 3 + 3);
  EXPECT_EQ(
      events[0],
      json({{"name", "process_name"}, {"ph", "M"}, {"pid", 0}, {"args", {{"name", "rank 0"}}}}));
  EXPECT_EQ(events[5].at("args").at("name"), "communication");
  EXPECT_EQ(events[6], json({{"name", "layer 3 submit restore"},
                             {"cat", "submit restore"},
                             {"ph", "i"},
                             {"pid", 1},
                             {"tid", 0},
                             {"ts", 2.0},
                             {"s", "t"},
                             {"args", {{"step", 4}, {"layer", 3}}}}));
  EXPECT_EQ(events[7], json({{"name", "layer 3 restore"},
                             {"cat", "restore"},
                             {"ph", "X"},
                             {"pid", 1},
                             {"tid", 1},
                             {"ts", 3.0},
                             {"dur", 2.5},
                             {"args", {{"step", 4}, {"layer", 3}}}}));
  EXPECT_EQ(events[8].at("name"), "layer 0 token all-to-all");
}

TEST(ScheduleTrace, IsValidWithoutEvents) {
  EXPECT_TRUE(json::parse(ScheduleTrace().json()).at("traceEvents").empty());
}

// Spans with unknown activities or lanes come from a rank of another version.
TEST(ScheduleTrace, LeavesOutUnknownSpans) {
  ScheduleTrace trace;
  trace.add({}, {.spans = {{99, 0, 0, 1, 2}, {-1, 0, 0, 1, 2}, {0, 2, 0, 1, 2}}});
  EXPECT_EQ(json::parse(trace.json()).at("traceEvents").size(), 3u) << "names alone";
}

}  // namespace
}  // namespace moetrain
