#include "trainer/rank/checkpoint_driver.h"

#include <utility>

namespace moetrain {

namespace {

constexpr SnapshotTaker::Which kRegular{.attempt = 0, .full = false};

}  // namespace

void CheckpointDriver::begin_epoch(const ckpt::client::Epoch& epoch) {
  due_ = false;
  daemon_absent_ = false;
  taker_.begin_epoch(epoch);
}

bool CheckpointDriver::is_due() {
  const uint64_t step = state_.progress.step;
  if (state_.pacer.due(step) && !saved_.current_is_saved()) due_ = true;
  return due_ && step < state_.options.steps;
}

void CheckpointDriver::begin_early(bool daemon_absent) {
  if (daemon_absent) {
    taker_.plan(kRegular);
  } else {
    (void)begin_regular();
  }
}

void CheckpointDriver::collect() { saved_.lost(taker_.settled()); }

Status CheckpointDriver::poll() {
  CKPT_TRY(taker_.poll());
  collect();
  return {};
}

void CheckpointDriver::apply_boundary(const Boundary& met) {
  daemon_absent_ = met.daemon_absent;
  saved_.apply_boundary(met);
}

void CheckpointDriver::take(EpochComm& comm, const Boundary& met, const Taking& taking) {
  take_due(comm, met, taking);
  if (met.retake) due_ = true;  // as soon as every rank has ckptd again
}

void CheckpointDriver::take_due(EpochComm& comm, const Boundary& met, const Taking& taking) {
  if (taking.early && met.failed_snapshot == state_.progress.step) {
    due_ = false;
    return drop("another rank could not begin");
  }
  if (met.daemon_absent) {
    if (taking.early) drop("another rank has no ckptd");
    if (is_due() && !std::exchange(postponed_, true) && state_.seat.rank == 0) {
      state_.events.write(state_.here(), PostponedEvent{});
    }
    return;
  }
  postponed_ = false;
  const bool begun = taking.early || (is_due() && begin_regular().ok());
  if (begun) fill_regular(comm, taking.experts_move);
  if (state_.options.wait_durable) taker_.await_settled();
}

Status CheckpointDriver::begin_regular() {
  return record(taker_.begin(kRegular, taker_.usual_pressure()));
}

Status CheckpointDriver::fill(const Snapshotter::BackPressure& pressure) {
  due_ = false;
  saved_.taken();
  return record(taker_.fill(pressure));
}

// Filling takes slabs and plans copies on the host. On a GPU it runs in the step, once the first
// kernels are queued, so that the device has work meanwhile (DeviceLink::when_busy). The step
// writes no state before that, unless it moves experts first.
void CheckpointDriver::fill_regular(EpochComm& comm, bool experts_move) {
  const bool later = state_.link && !state_.options.wait_durable && !experts_move;
  if (!later) {
    (void)fill(taker_.usual_pressure());
    return;
  }
  due_ = false;
  saved_.taken();
  state_.link->when_busy([this, &comm] {
    const EpochWatch::Recall session = comm.recall();
    (void)fill(taker_.usual_pressure());
  });
}

// After a failure the next regular snapshot is taken as usual; one that ckptd did not answer is
// taken again as soon as it does (Boundary::retake).
Status CheckpointDriver::record(SnapshotTaker::Attempt attempt) {
  if (attempt.status.ok()) return {};
  due_ = false;
  saved_.failed(attempt.unanswered);
  return std::move(attempt.status);
}

void CheckpointDriver::drop(const std::string& reason) {
  taker_.drop(reason);
  saved_.dropped();
}

void CheckpointDriver::step_ended() {
  if (state_.link) state_.link->when_busy({});
  if (taker_.begun()) saved_.not_filled();
}

Status CheckpointDriver::take_full(uint32_t attempt, const Snapshotter::BackPressure& pressure) {
  // A regular snapshot of this step that was begun and dropped may have had another plan.
  const SnapshotTaker::Which full{.attempt = kRegular.attempt + 1 + attempt, .full = true};
  CKPT_TRY(record(taker_.begin(full, pressure)));
  return fill(pressure);
}

}  // namespace moetrain
