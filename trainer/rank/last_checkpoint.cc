#include "trainer/rank/last_checkpoint.h"

#include <algorithm>

#include "trainer/elastic/snapshot_troubles.h"

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// libckpt survives a restart of ckptd in the middle of a snapshot. A snapshot that failed is tried
// again.
constexpr uint32_t kAttempts = 3;
// Timeout for earlier snapshots, once the last one is durable.
constexpr uint32_t kEarlierOnesMs = 30'000;

Result<std::optional<GroupLoss>> loss_or_failure(const Error& error) {
  if (!is_group_loss(error)) return error;
  return std::optional(GroupLoss{error.message});
}

}  // namespace

Result<std::optional<GroupLoss>> LastCheckpoint::save(EpochComm& comm, bool resumed_whole) {
  // The current step is saved only if nothing was trained since the epoch began.
  if (parts_.saved.current_is_saved() && (resumed_whole || parts_.saved.saved_before())) {
    const Result<bool> durable = is_durable(comm);
    if (!durable.ok()) return loss_or_failure(durable.error());
    if (*durable) return std::optional<GroupLoss>();
  }
  return save_full(comm);
}

// The snapshot of the step from which survivors continue may still fail. All ranks agree whether it
// did, because they save again together.
Result<bool> LastCheckpoint::is_durable(EpochComm& comm) {
  if (!parts_.saved.saved_before()) return true;  // the ranks restored it
  parts_.state.events.write(parts_.state.here(), SavingEvent{});
  parts_.saved.lost(parts_.taker.drain(ms_left()));
  const bool mine =
      !parts_.saved.current_is_lost() && !parts_.taker.in_flight(parts_.state.progress.step);
  int64_t unsaved = mine ? 0 : 1;
  CKPT_TRY(comm.all_reduce_max(std::span(&unsaved, 1)));
  if (unsaved == 0) return true;
  parts_.saved.retry_save();
  return false;
}

Result<std::optional<GroupLoss>> LastCheckpoint::save_full(EpochComm& comm) {
  RankState& state = parts_.state;
  SnapshotTaker& taker = parts_.taker;
  const DaemonPatience::Deadline deadline(state.member.patience(), end());
  Status failed;
  for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    state.events.write(state.here(), SavingEvent{});
    state.member.await_answer(ms_left() / (kAttempts - attempt));
    // Training is over, so a long wait delays nothing.
    failed = parts_.checkpoints.take_full(attempt,
                                          {.policy = CKPT_SLABS_WAIT, .wait_ms_max = ms_left()});
    const Result<Boundary> met = parts_.steps.meet(comm, /*snapshot_early=*/false);
    if (!met.ok()) return loss_or_failure(met.error());
    if (met->failed_snapshot != 0) {
      taker.abandon(state.progress.step);
      if (failed.ok()) {
        failed = make_error(ErrorCode::kAborted, "{}: {}", state.where(), kOtherRankFailed);
      }
      continue;
    }
    failed = taker.await_durable(ms_left());
    if (failed.ok()) {
      // The outcomes of earlier snapshots belong to the run's history, too.
      const DaemonPatience::Limit limit(state.member.patience(), DaemonPatience::kTrainingMs);
      (void)taker.drain(kEarlierOnesMs);
      return std::optional<GroupLoss>();
    }
    if (const auto over = state.member.epoch_over()) return std::optional(GroupLoss{*over});
  }
  if (ms_left() <= 1) {
    failed = make_error(ErrorCode::kDeadlineExceeded, "ckptd at {} did not write it within {} s",
                        state.options.socket, state.options.save_timeout_ms / 1'000);
  }
  return make_error(failed.error().code, "{}: the last checkpoint could not be saved: {}",
                    state.where(), snapshot_cause(failed.error().message));
}

std::chrono::steady_clock::time_point LastCheckpoint::end() {
  if (!end_) {
    end_ = std::chrono::steady_clock::now() +
           std::chrono::milliseconds(parts_.state.options.save_timeout_ms);
  }
  return *end_;
}

uint32_t LastCheckpoint::ms_left() {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      end() - std::chrono::steady_clock::now());
  return static_cast<uint32_t>(std::max<int64_t>(left.count(), 1));
}

}  // namespace moetrain
