// SnapshotTaker: takes this rank's part of single snapshots: plans, begins, fills and drops them,
// and reports how each ended. Which snapshots are due, and what follows from a failure, is
// CheckpointDriver's.
//
// Owned by EpochDriver, used from the rank's thread. A snapshot that fails is reported; training
// continues. Snapshots that all ranks had handed over settle in a later epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/daemon_patience.h"
#include "trainer/checkpoint/snapshotter.h"
#include "trainer/rank/pace_driver.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/snapshot_planner.h"
#include "trainer/rank/snapshot_stall.h"

namespace moetrain {

class SnapshotTaker {
 public:
  SnapshotTaker(RankState& state, PaceDriver& pace) : state_(state), planner_(state, pace) {}

  // An epoch was joined and its group is connected. If survivors continue, so do snapshots in
  // flight.
  void begin_epoch(const ckpt::client::Epoch& epoch);

  // Repeated snapshots of one step are told apart by their attempt.
  struct Which {
    uint32_t attempt = 0;  // 0: the regular one
    bool full = false;     // of all experts
  };
  struct Attempt {
    Status status;            // a failure has been reported already
    bool unanswered = false;  // it failed because ckptd did not answer
  };
  // Limits for the wait of training for a regular snapshot. Shorter after a failed snapshot, until
  // one is durable: ckptd may hang, and not every step may wait the full time.
  Snapshotter::BackPressure usual_pressure() const;
  // Plans the snapshot of the current step as the other ranks do, but does not begin it: ckptd does
  // not answer this rank.
  void plan(Which which);
  // Plans and begins the snapshot of the current step.
  Attempt begin(Which which, const Snapshotter::BackPressure& pressure);
  // Copies this rank's part of the snapshot that was begun, and hands it over.
  Attempt fill(const Snapshotter::BackPressure& pressure);
  bool begun() const { return snapshotter_->begun(); }
  // Aborts the snapshot that was begun and not filled, if there is one.
  void drop(const std::string& reason);
  // Aborts this rank's part of the step's snapshot, if it is still in flight, because another rank
  // failed.
  void abandon(uint64_t step);

  // Hands over the parts that have arrived from the device. An error is the device's.
  Status poll() { return snapshotter_->poll(); }
  // Reports the snapshots that have ended since the last call; returns the steps of those that
  // failed. Callable before the first epoch is connected.
  std::vector<uint64_t> settled();
  // These three wait. They return early when the epoch is over or ckptd is silent for too long.
  // Waits until the current step's snapshot has ended, if it is in flight.
  void await_settled();
  // Waits until the current step's snapshot is durable: kAborted if it failed, kDeadlineExceeded if
  // the time is over.
  Status await_durable(uint32_t timeout_ms);
  // Waits until all have ended. Reports them, and returns the steps of those that failed.
  std::vector<uint64_t> drain(uint32_t timeout_ms);
  bool in_flight(uint64_t step) const { return snapshotter_->in_flight(step); }

  // Copies the bytes of this state that a snapshot still needs. Called before it is overwritten.
  void before_write(const WeightState& state);

  // The stall since the last call, or since the last return to a checkpoint.
  SnapshotStall take_stall();

 private:
  Attempt failed(ckpt::Error error, bool unanswered);
  // Reports a stall of training to the supervisor, from within a wait.
  void report_stall();
  void report(const SnapshotOutcome& outcome, bool unanswered = false);
  std::vector<uint64_t> report_all(const std::vector<SnapshotOutcome>& outcomes);

  RankState& state_;
  SnapshotPlanner planner_;
  std::optional<Snapshotter> snapshotter_;  // from the first connected epoch on
  TakingEvent taking_;                      // of the snapshot that was begun
  bool training_waits_ = false;             // for it: it is not the last checkpoint
  std::optional<uint64_t> durable_step_;    // whose snapshot became durable last
  bool failed_last_ = false;                // a snapshot failed, and none was durable since
  StallClock clock_;
  SnapshotStall stall_;  // its waits; the time comes from the clock
};

}  // namespace moetrain
