#include "trainer/elastic/schedule_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "formats/base/json_dump.h"
#include "trainer/model/step_profile.h"

namespace moetrain {

namespace {

using TraceJson = nlohmann::ordered_json;

// By number of Activity.
constexpr const char* kActivityNames[] = {
    "token all-to-all", "restore",          "re-shard",
    "experts forward",  "experts backward", "submit restore",
    "submit re-shard",  "wait for restore", "wait for re-shard"};
static_assert(std::size(kActivityNames) == kActivities);
constexpr const char* kLaneNames[] = {"compute", "communication"};

// A span with an unknown activity or lane comes from another version.
bool is_known(const std::array<int64_t, 5>& span) {
  const auto [activity, lane, layer, begin_ns, end_ns] = span;
  return activity >= 0 && activity < int64_t{kActivities} && (lane == 0 || lane == 1);
}

bool is_moment(int64_t activity) {
  return activity == static_cast<int64_t>(Activity::kSubmitRestore) ||
         activity == static_cast<int64_t>(Activity::kSubmitReshard);
}

void add_names(TraceJson& events, uint32_t rank) {
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", rank},
                    {"args", {{"name", fmt::format("rank {}", rank)}}}});
  for (const int lane : {0, 1}) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", lane},
                      {"args", {{"name", kLaneNames[lane]}}}});
  }
}

TraceJson event_of(uint32_t rank, uint64_t step, const std::array<int64_t, 5>& span,
                   int64_t zero_ns) {
  const auto [activity, lane, layer, begin_ns, end_ns] = span;
  const char* name = kActivityNames[activity];
  TraceJson event = {{"name", fmt::format("layer {} {}", layer, name)},
                     {"cat", name},
                     {"ph", is_moment(activity) ? "i" : "X"},
                     {"pid", rank},
                     {"tid", lane},
                     {"ts", static_cast<double>(begin_ns - zero_ns) / 1e3}};
  if (is_moment(activity)) {
    event["s"] = "t";
  } else {
    event["dur"] = static_cast<double>(end_ns - begin_ns) / 1e3;
  }
  event["args"] = {{"step", step}, {"layer", layer}};
  return event;
}

}  // namespace

void ScheduleTrace::add(const EventHeader& at, const ScheduleEvent& schedule) {
  steps_.push_back({at.rank, at.step, schedule});
}

std::string ScheduleTrace::json() const {
  int64_t zero_ns = std::numeric_limits<int64_t>::max();
  std::set<uint32_t> ranks;
  uint64_t left_out = 0;
  for (const Step& step : steps_) {
    ranks.insert(step.rank);
    left_out += step.schedule.left_out;
    for (const auto& span : step.schedule.spans) zero_ns = std::min(zero_ns, span[3]);
  }
  TraceJson events = TraceJson::array();
  for (const uint32_t rank : ranks) add_names(events, rank);
  for (const Step& step : steps_) {
    for (const auto& span : step.schedule.spans) {
      if (is_known(span)) events.push_back(event_of(step.rank, step.step, span, zero_ns));
    }
  }
  const TraceJson document = {{"displayTimeUnit", "ms"},
                              {"otherData", {{"spans_left_out", left_out}}},
                              {"traceEvents", std::move(events)}};
  return ckpt::base::dump_json(document) + "\n";
}

}  // namespace moetrain
