// The stall: how long snapshots block the training thread.
//
// Stall is one number everywhere: the time for which the rank's thread is blocked by snapshots,
// whatever the reason. Plan, wait for an earlier snapshot, for slabs and for ckptd, copy, and with
// `--checkpoint-wait durable` the wait for the disk all count, of failed and dropped snapshots too.
// StallClock is its only clock in moetrain: events of steps, events of snapshots and the report
// have its times. After the last step no training waits: the wait until the last checkpoint is
// durable is no stall.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "trainer/checkpoint/snapshotter.h"

namespace moetrain {

struct SnapshotStall {
  double ms = 0;             // since the last step was reported
  Snapshotter::Waits waits;  // the waits of the newest snapshot, parts of `ms`

  // Adds what a snapshot waited from `before` to `now`. `silence_ms` is the part of that time in
  // which ckptd did not answer: it counts neither as a wait for the disk nor for slabs.
  void add(const Snapshotter::Waits& before, const Snapshotter::Waits& now, uint64_t silence_ms);
};

class StallClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit StallClock(std::function<Time()> now = std::chrono::steady_clock::now)
      : now_(std::move(now)) {}

  // Scope: the thread is blocked by the snapshot of this step, or by an unknown one. If scopes
  // nest, their common time counts once, for the inner one.
  class Blocked {
   public:
    explicit Blocked(StallClock& clock, std::optional<uint64_t> step = {})
        : clock_(clock), step_(step), all_before_(clock.all_), since_(clock.now_()) {}
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;
    ~Blocked() { clock_.add(step_, elapsed() - (clock_.all_ - all_before_)); }
    std::chrono::nanoseconds elapsed() const { return clock_.now_() - since_; }

   private:
    StallClock& clock_;
    const std::optional<uint64_t> step_;
    const std::chrono::nanoseconds all_before_;
    const Time since_;
  };

  // The stall since the last call, in milliseconds, by all snapshots.
  double take();
  // The stall by the snapshot of this step since it was last taken, in milliseconds.
  double take(uint64_t step);
  // Drops the stall by the snapshot of this step, which is not reported; take() still has it.
  void drop(uint64_t step) { by_step_.erase(step); }
  // The rank restarts: drops all measurements.
  void reset();

 private:
  void add(std::optional<uint64_t> step, std::chrono::nanoseconds blocked);

  std::function<Time()> now_;
  std::chrono::nanoseconds all_{};
  std::map<uint64_t, std::chrono::nanoseconds> by_step_;  // of snapshots that are not settled
};

}  // namespace moetrain
