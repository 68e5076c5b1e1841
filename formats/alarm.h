// Alarm: a finding about one unit of a snapshot, as history stores and prints it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/ids.h"
#include "formats/unit.h"
#include "formats/wire/records_generated.h"

namespace ckpt {

struct Alarm {
  UnitId unit = 0;
  fb::AlarmKind kind = fb::AlarmKind::NotFinite;
  uint64_t value = 0;  // number of floats, or a step: see records.fbs
  bool operator==(const Alarm&) const = default;
};
inline constexpr size_t kAlarmKinds = 3;

// "not_finite", "unchanged", "stale"; "unknown" for a kind of a newer schema.
std::string_view alarm_kind_name(fb::AlarmKind kind);

// Alarms of one snapshot: the first kAlarmsListedMax, and the count of the others.
struct AlarmList {
  std::vector<Alarm> alarms;
  uint32_t left_out = 0;

  bool empty() const { return alarms.empty(); }
  size_t total() const { return alarms.size() + left_out; }
  void add(const Alarm& alarm);
  bool operator==(const AlarmList&) const = default;
};
// If a model has turned to NaN, every unit raises an alarm; 64 KiB of a record are enough for them.
inline constexpr size_t kAlarmsListedMax = 4096;

std::vector<fb::Alarm> to_fb(const AlarmList& list);
AlarmList from_fb(const std::vector<fb::Alarm>& alarms, uint32_t left_out);

// "unit layers.0.experts.1.weights: 3 of its floats are NaN or infinite". `step` is the step of
// the snapshot.
std::string describe(const Alarm& alarm, Step step, const std::vector<UnitSpec>& units);
// One sentence with the first few alarms and the count of the others.
std::string describe(const AlarmList& list, Step step, const std::vector<UnitSpec>& units);

}  // namespace ckpt
