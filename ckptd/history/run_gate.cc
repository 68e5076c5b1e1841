#include "ckptd/history/run_gate.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "formats/base/assert.h"

namespace ckptd {

namespace {

constexpr size_t kLasting = 6;  // activities with tokens: the first ones

struct Row {
  RunActivity wanted;
  std::string_view excluded_by;  // by activity in progress, in the order of RunActivity
};

//                                       administer, delete, remove, replace, register, write epoch
constexpr std::array<Row, kRunActivities> kTable = {{{RunActivity::kAdminister, "x....."},
                                                     {RunActivity::kDelete, ".xxx.x"},
                                                     {RunActivity::kRemove, ".xxxxx"},
                                                     {RunActivity::kReplace, ".xxxxx"},
                                                     {RunActivity::kRegister, "..xx.."},
                                                     {RunActivity::kWriteEpoch, ".xxx.x"},
                                                     {RunActivity::kHold, ".xxx.."},
                                                     {RunActivity::kReference, ".xxx.."},
                                                     {RunActivity::kEndEpoch, "..xx.."}}};

constexpr size_t index_of(RunActivity activity) { return static_cast<size_t>(activity); }

// Rows in the order of RunActivity. Two lasting activities exclude each other in both directions:
// otherwise the order of their beginnings would decide whether both may continue.
constexpr bool table_is_sound() {
  for (size_t row = 0; row < kRunActivities; ++row) {
    if (index_of(kTable[row].wanted) != row || kTable[row].excluded_by.size() != kLasting) {
      return false;
    }
  }
  for (size_t a = 0; a < kLasting; ++a) {
    for (size_t b = 0; b < kLasting; ++b) {
      if (kTable[a].excluded_by[b] != kTable[b].excluded_by[a]) return false;
    }
  }
  return true;
}
static_assert(table_is_sound());

}  // namespace

bool excludes(RunActivity running, RunActivity wanted) {
  if (index_of(running) >= kLasting) return false;
  return kTable[index_of(wanted)].excluded_by[index_of(running)] == 'x';
}

RunGate::Token& RunGate::Token::operator=(Token&& other) noexcept {
  if (this == &other) return *this;
  release();
  gate_ = std::exchange(other.gate_, nullptr);
  activity_ = other.activity_;
  run_ = other.run_;
  return *this;
}

void RunGate::Token::release() {
  if (RunGate* gate = std::exchange(gate_, nullptr)) gate->end(activity_, run_);
}

RunGate::~RunGate() { CKPT_ASSERT_MSG(held_.empty(), "a change of a run outlives its gate"); }

bool RunGate::may(RunActivity activity, ckpt::RunId run) const {
  const auto first = held_.lower_bound({run, RunActivity{}});
  const auto last =
      std::find_if(first, held_.end(), [run](const auto& held) { return held.first != run; });
  return std::none_of(first, last,
                      [activity](const auto& held) { return excludes(held.second, activity); });
}

RunGate::Token RunGate::begin(RunActivity activity, ckpt::RunId run) {
  CKPT_ASSERT_MSG(may(activity, run), "an activity begins that another one excludes");
  CKPT_ASSERT(index_of(activity) < kLasting);
  CKPT_ASSERT((activity == RunActivity::kAdminister) == (run == kAllRuns));
  held_.insert({run, activity});
  return {*this, activity, run};
}

void RunGate::wait(RunActivity activity, ckpt::RunId run, std::function<void()> wake) {
  CKPT_ASSERT_MSG(!may(activity, run), "an activity waits that may begin");
  const bool waits = std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& other) {
    return other.activity == activity && other.run == run;
  });
  if (!waits && !closed_) waiting_.push_back({activity, run, std::move(wake)});
}

void RunGate::close() {
  closed_ = true;
  waiting_.clear();
}

// A callback may begin an activity, wait again, or release other tokens: each round checks again.
void RunGate::end(RunActivity activity, ckpt::RunId run) {
  held_.erase(held_.find({run, activity}));
  for (;;) {
    const auto next = std::find_if(waiting_.begin(), waiting_.end(), [this](const Waiting& one) {
      return may(one.activity, one.run);
    });
    if (next == waiting_.end()) return;
    const std::function<void()> wake = std::move(next->wake);
    waiting_.erase(next);
    wake();
  }
}

}  // namespace ckptd
