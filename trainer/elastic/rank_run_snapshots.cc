// The part of RankRun that takes snapshots: when, how long it waits, and what becomes of them.
#include <algorithm>
#include <utility>

#include "trainer/elastic/rank_run.h"
#include "trainer/elastic/snapshot_troubles.h"
#include "trainer/elastic/timed.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using Kind = RankEvent::Kind;

namespace {

// For ckptd to answer that it has room, or has none.
constexpr uint32_t kAnswerMs = 1'000;
// A restart of ckptd in the middle of the last snapshot is survived by libckpt; what is tried again
// is a snapshot that failed.
constexpr uint32_t kLastSnapshotAttempts = 3;
// For those before the last one, once that is durable.
constexpr uint32_t kEarlierOnesMs = 30'000;

}  // namespace

bool RankRun::snapshot_is_due() {
  const uint64_t step = progress_.step;
  if (pacer_->due(step) && step != saved_step_) snapshot_due_ = true;
  return snapshot_due_ && step < options_.steps;
}

Snapshotter::BackPressure RankRun::usual_pressure() const {
  const bool skip = options_.skip_when_out_of_slabs;
  Snapshotter::BackPressure pressure{.policy = skip ? CKPT_SLABS_SKIP : CKPT_SLABS_WAIT,
                                     .silence_ms_max = DaemonPatience::kTrainingMs};
  if (skip || waited_in_vain_) pressure.wait_ms_max = kAnswerMs;
  return pressure;
}

Status RankRun::begin_snapshot(Result<Snapshotter::Request> wanted,
                               const Snapshotter::BackPressure& pressure) {
  Status begun;
  waits_ = {};
  const bool asks = wanted.ok();
  const DaemonPatience::Limit limit(member_->patience(), pressure.silence_ms_max);
  {
    const Timed stall(stall_ms_);
    begun = asks ? snapshotter_->begin(std::move(*wanted), pressure) : wanted.error();
  }
  if (asks) add_waits({}, limit.silence_ms());
  return begun.ok() ? begun : snapshot_failed(begun.error(), limit.over());
}

Status RankRun::fill_snapshot(const Snapshotter::BackPressure& pressure) {
  if (rank_ == 0) events_.write(std::move(taking_));
  snapshot_due_ = false;
  saved_step_ = progress_.step;
  Status filled;
  const Snapshotter::Waits before = snapshotter_->waits();
  const DaemonPatience::Limit limit(member_->patience(), pressure.silence_ms_max);
  {
    const Timed stall(stall_ms_);
    filled = snapshotter_->fill(*memory_);
  }
  add_waits(before, limit.silence_ms());
  return filled.ok() ? filled : snapshot_failed(filled.error(), limit.over());
}

// Places are taken and copies planned on the host. Where the state is on a GPU, that is left to the
// step that follows, until its first kernels are queued: the device has something to do meanwhile.
// The step writes nothing before (DeviceLink::when_busy), unless it places experts anew first.
void RankRun::fill_regular() {
  const bool later = link_ && !options_.wait_durable && !replanner_->due(progress_.step);
  if (!later) {
    (void)fill_snapshot(usual_pressure());
    return;
  }
  snapshot_due_ = false;
  saved_step_ = progress_.step;
  link_->when_busy([this] {
    const EpochWatch::Recall recall(*watch_);
    (void)fill_snapshot(usual_pressure());
  });
}

// Adds what the snapshot has waited since `before`. While ckptd is silent nothing waits for the
// disk or for slabs.
void RankRun::add_waits(const Snapshotter::Waits& before, uint64_t silence_ms) {
  const Snapshotter::Waits& now = snapshotter_->waits();
  auto silent_ms = static_cast<double>(silence_ms);
  const auto heard_ms = [&silent_ms](double ms) {
    const double heard = std::max(0.0, ms - silent_ms);
    silent_ms -= ms - heard;
    return heard;
  };
  waits_.slabs_ms += heard_ms(now.slabs_ms - before.slabs_ms);
  waits_.room_ms += heard_ms(now.room_ms - before.room_ms);
  waits_.open = now.open;
}

ckpt::Error RankRun::no_answer() const {
  return make_error(ErrorCode::kUnavailable, "ckptd at {} did not answer for {} ms",
                    options_.socket, DaemonPatience::kTrainingMs);
}

// The next one is taken as usual; where ckptd did not answer, as soon as it does.
Status RankRun::snapshot_failed(ckpt::Error error, bool without_answer) {
  if (without_answer) {
    error = no_answer();
    waits_ = {};  // neither the disk nor the arena is to blame
  }
  retake_ = retake_ || without_answer;
  snapshot_due_ = false;
  waited_in_vain_ = true;
  failed_snapshots_.insert(progress_.step);
  report_snapshot({.step = progress_.step, .reason = error.message, .stall_ms = stall_ms_},
                  without_answer);
  return error;
}

void RankRun::drop_snapshot(const std::string& reason) {
  snapshotter_->drop(reason);
  partial_->failed(progress_.step);  // its experts are due again, on every rank
}

void RankRun::snapshot_at(const Boundary& boundary, bool early) {
  const bool begun_by_all = early && boundary.failed_snapshot != progress_.step;
  if (early && !begun_by_all) {
    snapshot_due_ = false;
    return drop_snapshot("another rank could not begin");
  }
  if (boundary.away) {
    if (early) drop_snapshot("another rank has no ckptd");
    if (snapshot_is_due() && !std::exchange(postponed_, true) && rank_ == 0) {
      events_.write({.kind = Kind::kPostponed, .epoch = epoch_, .step = progress_.step});
    }
    return;
  }
  postponed_ = false;
  // A failure is reported; training goes on.
  if (early || (snapshot_is_due() &&
                begin_snapshot(request(kRegularAttempt, /*full=*/false), usual_pressure()).ok())) {
    fill_regular();
  }
  if (!options_.wait_durable) return;
  const DaemonPatience::Limit limit(member_->patience(), DaemonPatience::kTrainingMs);
  const Timed stall(stall_ms_);
  snapshotter_->await_settled(progress_.step, Snapshotter::BackPressure().wait_ms_max);
}

void RankRun::report_snapshots() {
  if (!snapshotter_) return;
  for (const SnapshotOutcome& outcome : snapshotter_->settled()) {
    report_snapshot(outcome);
    if (!outcome.durable) lost_snapshots_.insert(outcome.step);
  }
}

void RankRun::report_snapshot(const SnapshotOutcome& outcome, bool without_answer) {
  if (rank_ == 0 && !outcome.alarms.empty()) {
    events_.log(fmt::format("run {} step {}: ckptd raised an alarm: {}", options_.run, outcome.step,
                            outcome.alarms));
  }
  if (outcome.durable) {
    pacer_->durable(outcome.step, outcome.durable_ms);
    durable_step_ = outcome.step;
    waited_in_vain_ = false;
  }
  events_.write({.kind = Kind::kSnapshot,
                 .step = outcome.step,
                 .text = outcome.reason,
                 .stall_ms = outcome.stall_ms,
                 .durable = outcome.durable,
                 .taken_in = outcome.epoch,
                 .bytes = outcome.bytes,
                 .durable_ms = outcome.durable_ms,
                 .no_answer = without_answer});
}

// One for all attempts to save the last checkpoint, in whatever epoch.
std::chrono::steady_clock::time_point RankRun::save_end() {
  if (!save_end_) {
    save_end_ =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.save_timeout_ms);
  }
  return *save_end_;
}

uint32_t RankRun::save_ms_left() {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      save_end() - std::chrono::steady_clock::now());
  return static_cast<uint32_t>(std::max<int64_t>(left.count(), 1));
}

// The last checkpoint: the run ends only when it is durable. All ranks take the same turns, because
// each attempt begins and ends with what they agree on.
Result<RankRun::Ending> RankRun::save_last(Comm& comm) {
  // Nothing was done since the resume, and what was resumed from is a full checkpoint's worth. Or
  // it was the last checkpoint of all that was lost with a rank.
  if (saved_step_ == progress_.step && (resumed_whole_ || went_on_)) {
    const Result<bool> saved = saved_in_the_end(comm);
    if (!saved.ok() && !is_group_loss(saved.error())) return saved.error();
    if (!saved.ok()) return leave_group(&comm, saved.error().message);
    if (*saved) return Ending::kSaved;
  }
  const DaemonPatience::Deadline deadline(member_->patience(), save_end());
  Status failed;
  for (uint32_t attempt = 0; attempt < kLastSnapshotAttempts; ++attempt) {
    events_.write({.kind = Kind::kSaving, .epoch = epoch_, .step = progress_.step});
    member_->await_answer(save_ms_left() / (kLastSnapshotAttempts - attempt));
    durable_step_.reset();
    // Training is over, so a long wait delays nothing.
    const Snapshotter::BackPressure patient{.policy = CKPT_SLABS_WAIT,
                                            .wait_ms_max = save_ms_left()};
    // What was begun as a regular one, and dropped, may have another plan.
    failed = begin_snapshot(request(kRegularAttempt + 1 + attempt, /*full=*/true), patient);
    if (failed.ok()) failed = fill_snapshot(patient);
    const Result<Boundary> boundary = meet(comm);
    if (!boundary.ok()) {
      if (!is_group_loss(boundary.error())) return boundary.error();
      return leave_group(&comm, boundary.error().message);
    }
    if (boundary->failed_snapshot != 0) {
      snapshotter_->abandon(progress_.step, std::string(kOtherRankFailed));
      if (failed.ok())
        failed = make_error(ErrorCode::kAborted, "{}: {}", where(), kOtherRankFailed);
      continue;
    }
    // It may have become durable before the ranks met, who report what is settled.
    Status saved;
    if (durable_step_ != progress_.step) {
      const auto outcome = snapshotter_->wait(progress_.step, save_ms_left());
      if (outcome.ok()) report_snapshot(*outcome);
      if (!outcome.ok()) saved = outcome.error();
    }
    if (saved.ok()) {
      // Earlier ones may still be on their way: their end belongs to the run's history, too.
      const DaemonPatience::Limit limit(member_->patience(), DaemonPatience::kTrainingMs);
      for (const SnapshotOutcome& outcome : snapshotter_->drain(kEarlierOnesMs)) {
        report_snapshot(outcome);
      }
      return Ending::kSaved;
    }
    if (const auto over = member_->epoch_over()) return leave_group(&comm, *over);
    failed = saved.error();
  }
  if (save_ms_left() <= 1) {
    failed = make_error(ErrorCode::kDeadlineExceeded, "ckptd at {} did not write it within {} s",
                        options_.socket, options_.save_timeout_ms / 1'000);
  }
  return make_error(failed.error().code, "{}: the last checkpoint could not be saved: {}", where(),
                    snapshot_cause(failed.error().message));
}

}  // namespace moetrain
