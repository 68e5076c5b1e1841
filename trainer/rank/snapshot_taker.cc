#include "trainer/rank/snapshot_taker.h"

#include <chrono>
#include <utility>

#include "trainer/elastic/snapshot_troubles.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Timeout of ckptd's answer whether it has free slabs.
constexpr uint32_t kAnswerMs = 1'000;
// A longer wait of training is reported while it lasts.
constexpr std::chrono::milliseconds kReportStallAfter{2'000};

}  // namespace

void SnapshotTaker::begin_epoch(const ckpt::client::Epoch& epoch) {
  if (epoch.goes_on && snapshotter_) return snapshotter_->enter_epoch(epoch.rank, epoch.epoch);
  clock_.reset();
  stall_ = {};
  Member& member = state_.member;
  snapshotter_.emplace(member.session(), epoch.rank, state_.link.get(), epoch.epoch);
  snapshotter_->set_abort_waits(
      [&member] { return member.patience().ends_call() || member.epoch_over().has_value(); });
}

Snapshotter::BackPressure SnapshotTaker::usual_pressure() const {
  const bool skip = state_.options.skip_when_out_of_slabs;
  // With CKPT_SLABS_SKIP the wait is for memory that ckptd prepares, at the first checkpoint.
  Snapshotter::BackPressure pressure{.policy = skip ? CKPT_SLABS_SKIP : CKPT_SLABS_WAIT,
                                     .silence_ms_max = DaemonPatience::kTrainingMs};
  if (failed_last_) pressure.wait_ms_max = kAnswerMs;
  return pressure;
}

void SnapshotTaker::plan(Which which) {
  const StallClock::Blocked blocked(clock_);
  (void)planner_.plan(which.attempt, which.full);
}

SnapshotTaker::Attempt SnapshotTaker::begin(Which which,
                                            const Snapshotter::BackPressure& pressure) {
  durable_step_.reset();
  stall_.waits = {};
  training_waits_ = !which.full;
  const DaemonPatience::Limit limit(state_.member.patience(), pressure.silence_ms_max);
  const DaemonPatience::LongWait wait(state_.member.patience(), kReportStallAfter,
                                      [this] { report_stall(); });
  Status begun;
  {
    const StallClock::Blocked blocked(clock_, state_.progress.step);
    Result<PlannedSnapshot> planned = planner_.plan(which.attempt, which.full);
    if (!planned.ok()) {
      begun = planned.error();
    } else {
      planned->request.plan_ns = static_cast<uint64_t>(blocked.elapsed().count());
      taking_ = std::move(planned->taking);
      begun = snapshotter_->begin(std::move(planned->request), pressure);
      stall_.add({}, snapshotter_->waits(), limit.silence_ms());
    }
  }
  if (begun.ok()) return {};
  return failed(begun.error(), limit.over());
}

SnapshotTaker::Attempt SnapshotTaker::fill(const Snapshotter::BackPressure& pressure) {
  if (state_.seat.rank == 0)
    state_.events.write({.step = state_.progress.step}, std::move(taking_));
  const Snapshotter::Waits before = snapshotter_->waits();
  const DaemonPatience::Limit limit(state_.member.patience(), pressure.silence_ms_max);
  const DaemonPatience::LongWait wait(state_.member.patience(), kReportStallAfter,
                                      [this] { report_stall(); });
  Status filled;
  {
    const StallClock::Blocked blocked(clock_, state_.progress.step);
    filled = snapshotter_->fill(*state_.held.memory);
  }
  stall_.add(before, snapshotter_->waits(), limit.silence_ms());
  if (filled.ok()) return {};
  return failed(filled.error(), limit.over());
}

void SnapshotTaker::report_stall() {
  if (!training_waits_) return;
  const auto waited_ms = static_cast<double>(kReportStallAfter.count());
  state_.events.write(state_.here(), StallingEvent{.waited_ms = waited_ms,
                                                   .snapshots_open = snapshotter_->waits().open});
}

SnapshotTaker::Attempt SnapshotTaker::failed(ckpt::Error error, bool unanswered) {
  if (unanswered) {
    error = make_error(ErrorCode::kUnavailable, "ckptd at {} did not answer for {} ms",
                       state_.options.socket, DaemonPatience::kTrainingMs);
    stall_.waits = {};  // neither the disk nor the arena is to blame
  }
  failed_last_ = true;
  report({.step = state_.progress.step, .reason = error.message, .detail = error.detail},
         unanswered);
  return {std::move(error), unanswered};
}

void SnapshotTaker::drop(const std::string& reason) {
  if (!snapshotter_) return;
  if (snapshotter_->begun()) clock_.drop(state_.progress.step);
  snapshotter_->drop(reason);
}

void SnapshotTaker::abandon(uint64_t step) {
  snapshotter_->abandon(step, std::string(kOtherRankFailed));
}

std::vector<uint64_t> SnapshotTaker::settled() {
  if (!snapshotter_) return {};
  return report_all(snapshotter_->settled());
}

void SnapshotTaker::await_settled() {
  const DaemonPatience::Limit limit(state_.member.patience(), DaemonPatience::kTrainingMs);
  std::optional<uint64_t> step;  // of a snapshot that will be reported
  if (snapshotter_->in_flight(state_.progress.step)) step = state_.progress.step;
  const StallClock::Blocked blocked(clock_, step);
  snapshotter_->await_settled(state_.progress.step, Snapshotter::BackPressure().wait_ms_max);
}

Status SnapshotTaker::await_durable(uint32_t timeout_ms) {
  // settled() may have seen and reported it already.
  if (durable_step_ == state_.progress.step) return {};
  CKPT_ASSIGN(const SnapshotOutcome outcome, snapshotter_->wait(state_.progress.step, timeout_ms));
  report(outcome);
  return {};
}

std::vector<uint64_t> SnapshotTaker::drain(uint32_t timeout_ms) {
  return report_all(snapshotter_->drain(timeout_ms));
}

void SnapshotTaker::before_write(const WeightState& state) {
  if (!state_.link) return;
  const StallClock::Blocked blocked(clock_);
  snapshotter_->before_write(state_.held.memory->units_of(state));
}

SnapshotStall SnapshotTaker::take_stall() {
  stall_.ms = clock_.take();
  return std::exchange(stall_, {});
}

std::vector<uint64_t> SnapshotTaker::report_all(const std::vector<SnapshotOutcome>& outcomes) {
  std::vector<uint64_t> failed_steps;
  for (const SnapshotOutcome& outcome : outcomes) {
    report(outcome);
    if (!outcome.durable) failed_steps.push_back(outcome.step);
  }
  return failed_steps;
}

void SnapshotTaker::report(const SnapshotOutcome& outcome, bool unanswered) {
  if (state_.seat.rank == 0 && !outcome.alarms.empty()) {
    state_.events.log(fmt::format("run {} step {}: ckptd raised an alarm: {}", state_.options.run,
                                  outcome.step, outcome.alarms));
  }
  if (outcome.durable) {
    state_.pacer.durable(outcome.step, outcome.durable_ms);
    durable_step_ = outcome.step;
    failed_last_ = false;
  }
  state_.events.write({.step = outcome.step},
                      SnapshotEvent{.durable = outcome.durable,
                                    .reason = outcome.reason,
                                    .detail = static_cast<int32_t>(outcome.detail),
                                    .no_answer = unanswered,
                                    .taken_in = outcome.epoch,
                                    .bytes = outcome.bytes,
                                    .stall_ms = clock_.take(outcome.step),
                                    .durable_ms = outcome.durable_ms,
                                    .timings = outcome.timings});
}

}  // namespace moetrain
