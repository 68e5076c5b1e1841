#include "ckptd/observe/health.h"

#include <algorithm>
#include <utility>

namespace ckptd {

namespace {

struct Description {
  std::string_view name;
  bool stops_saving;
};

// In the order of Condition. worst() prefers the earlier entry among equals in stops_saving.
constexpr std::array<Description, kConditions> kDescriptions = {{
    {"disk_full", true},
    {"writes_failing", true},
    {"disk_slow", false},
    {"catalog_unreadable", true},
    {"journal_closed", true},
    {"damaged_data", false},
    {"snapshots_failing", false},
    {"unchecked_data", false},
    {"cannot_accept", false},
}};

}  // namespace

std::string_view condition_name(Condition condition) {
  return kDescriptions[static_cast<size_t>(condition)].name;
}

bool stops_saving(Condition condition) {
  return kDescriptions[static_cast<size_t>(condition)].stops_saving;
}

Health::Change Health::set(Condition condition, std::optional<Fault> fault, uint64_t now_ns) {
  State& state = states_[static_cast<size_t>(condition)];
  if (!fault) {
    if (!state.held) return Change::kNone;
    state.held.reset();
    return Change::kEnded;
  }
  if (!state.held) {
    state.held = Held{.fault = *std::move(fault), .since_ns = now_ns};
    ++state.times_begun;
    return Change::kBegan;
  }
  const bool other = state.held->fault.kind != fault->kind;
  state.held->fault = *std::move(fault);
  return other ? Change::kCauseChanged : Change::kNone;
}

const Health::Held* Health::held(Condition condition) const {
  const State& state = states_[static_cast<size_t>(condition)];
  return state.held ? &*state.held : nullptr;
}

uint64_t Health::times_begun(Condition condition) const {
  return states_[static_cast<size_t>(condition)].times_begun;
}

bool Health::ok() const { return worst() == nullptr; }

bool Health::can_save() const {
  for (size_t i = 0; i < kConditions; ++i) {
    if (states_[i].held && kDescriptions[i].stops_saving) return false;
  }
  return true;
}

const Health::Held* Health::worst() const {
  for (const bool stops : {true, false}) {
    for (size_t i = 0; i < kConditions; ++i) {
      if (states_[i].held && kDescriptions[i].stops_saving == stops) return &*states_[i].held;
    }
  }
  return nullptr;
}

}  // namespace ckptd
