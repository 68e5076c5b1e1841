#include "formats/alarm.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/base/counted.h"

namespace ckpt {
namespace {

// Alarms that a log line and an error message name.
constexpr size_t kAlarmsInSentence = 4;

std::string unit_name(UnitId unit, const std::vector<UnitSpec>& units) {
  return unit < units.size() ? units[unit].name : fmt::format("number {}", unit);
}

}  // namespace

std::string_view alarm_kind_name(fb::AlarmKind kind) {
  switch (kind) {
    case fb::AlarmKind::NotFinite:
      return "not_finite";
    case fb::AlarmKind::Unchanged:
      return "unchanged";
    case fb::AlarmKind::Stale:
      return "stale";
  }
  return "unknown";
}

void AlarmList::add(const Alarm& alarm) {
  if (alarms.size() < kAlarmsListedMax) {
    alarms.push_back(alarm);
  } else {
    ++left_out;
  }
}

std::vector<fb::Alarm> to_fb(const AlarmList& list) {
  std::vector<fb::Alarm> out;
  out.reserve(list.alarms.size());
  for (const Alarm& alarm : list.alarms) out.emplace_back(alarm.unit, alarm.kind, alarm.value);
  return out;
}

AlarmList from_fb(const std::vector<fb::Alarm>& alarms, uint32_t left_out) {
  AlarmList list;
  list.left_out = left_out;
  for (const fb::Alarm& alarm : alarms) {
    list.alarms.push_back({alarm.unit(), alarm.kind(), alarm.value()});
  }
  return list;
}

std::string describe(const Alarm& alarm, Step step, const std::vector<UnitSpec>& units) {
  const std::string name = unit_name(alarm.unit, units);
  switch (alarm.kind) {
    case fb::AlarmKind::NotFinite:
      return fmt::format("unit {}: {} of its floats {} NaN or infinite", name, alarm.value,
                         alarm.value == 1 ? "is" : "are");
    case fb::AlarmKind::Unchanged:
      return fmt::format("unit {}: unchanged since step {} (checksum equal)", name, alarm.value);
    case fb::AlarmKind::Stale:
      return fmt::format("unit {}: not in the plan, its newest version is of step {}, {} old", name,
                         alarm.value, base::counted(step - std::min(step, alarm.value), "step"));
  }
  return fmt::format("unit {}: an alarm of a kind that this program does not know", name);
}

std::string describe(const AlarmList& list, Step step, const std::vector<UnitSpec>& units) {
  std::string text;
  const size_t listed = std::min(list.alarms.size(), kAlarmsInSentence);
  for (size_t i = 0; i < listed; ++i) {
    text += (i > 0 ? "; " : "") + describe(list.alarms[i], step, units);
  }
  if (list.total() > listed) text += fmt::format("; and {} more", list.total() - listed);
  return text;
}

}  // namespace ckpt
