#include "bench/research/schedule_figures.h"

#include <algorithm>
#include <array>

#include "trainer/model/step_profile.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using moetrain::Activity;
using moetrain::Lane;
using moetrain::RankEvent;
using moetrain::ScheduleEvent;

namespace {

using Span = std::array<int64_t, 5>;  // as ScheduleEvent has it

bool is_of(const Span& span, Activity activity) {
  return span[0] == static_cast<int64_t>(activity);
}

// Exchanges of one kind in one step. They are waited for in the order in which they were started.
class Pairing {
 public:
  Pairing(Activity at_once, Activity submit, Activity wait)
      : at_once_(at_once), submit_(submit), wait_(wait) {}

  // A span of the rank's own thread; `computed`: layers of experts until then.
  bool add(const Span& span, uint64_t computed) {
    if (is_of(span, at_once_)) ++exchanges_;
    if (is_of(span, submit_)) started_.push_back(computed);
    if (!is_of(span, wait_)) return true;
    if (ended_ == started_.size()) return false;
    layers_ += computed - started_[ended_++];
    ++exchanges_;
    return true;
  }
  bool complete() const { return ended_ == started_.size(); }
  void add_to(ExchangeLead& sum) const {
    sum.exchanges += exchanges_;
    sum.layers += static_cast<double>(layers_);
  }

 private:
  const Activity at_once_;
  const Activity submit_;
  const Activity wait_;
  std::vector<uint64_t> started_;  // layers computed before each
  size_t ended_ = 0;
  uint64_t exchanges_ = 0;
  uint64_t layers_ = 0;
};

// Adds up one step of one rank. False: the step has a wait without an exchange, or the reverse.
bool add_step(const ScheduleEvent& schedule, ScheduleFigures& figures) {
  std::vector<Span> own;  // of the rank's thread, by their end
  for (const Span& span : schedule.spans) {
    if (span[1] == static_cast<int64_t>(Lane::kCompute)) own.push_back(span);
  }
  std::ranges::stable_sort(own, {}, [](const Span& span) { return span[4]; });
  Pairing restores(Activity::kRestore, Activity::kSubmitRestore, Activity::kWaitRestore);
  Pairing reshards(Activity::kReshard, Activity::kSubmitReshard, Activity::kWaitReshard);
  uint64_t computed = 0;
  for (const Span& span : own) {
    if (is_of(span, Activity::kExpertsForward) || is_of(span, Activity::kExpertsBackward)) {
      ++computed;
    }
    if (!restores.add(span, computed) || !reshards.add(span, computed)) return false;
  }
  if (!restores.complete() || !reshards.complete()) return false;
  ++figures.steps;
  restores.add_to(figures.restores);
  reshards.add_to(figures.reshards);
  return true;
}

}  // namespace

Result<ScheduleFigures> schedule_figures(const std::vector<RankEvent>& events) {
  ScheduleFigures figures;
  for (const RankEvent& event : events) {
    const auto* schedule = event.as<ScheduleEvent>();
    if (schedule == nullptr) continue;
    const moetrain::EventHeader& at = event.header;
    if (schedule->left_out > 0) {
      return make_error(ErrorCode::kCorrupt, "schedule of rank {}, step {}: {} spans are left out",
                        at.rank, at.step, schedule->left_out);
    }
    if (!add_step(*schedule, figures)) {
      return make_error(ErrorCode::kCorrupt,
                        "schedule of rank {}, step {}: exchanges and waits for them do not pair",
                        at.rank, at.step);
    }
  }
  for (ExchangeLead* lead : {&figures.restores, &figures.reshards}) {
    if (lead->exchanges > 0) lead->layers /= static_cast<double>(lead->exchanges);
  }
  return figures;
}

}  // namespace bench
