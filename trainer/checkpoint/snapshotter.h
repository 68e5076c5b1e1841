// Snapshotter: takes one rank's share of snapshots, asynchronously.
//
// begin() asks ckptd for slabs and does not wait for the answer, so the caller can work meanwhile.
// fill() blocks for the copy into the arena (and, by policy, for slabs). With the state on a GPU it
// blocks for no copy; before_write() makes the device wait instead. Writing, the commit and the
// outcome come later, through Session::poll() and settled(). A failed snapshot is reported, and
// never stops training. Lives as long as the group continues: snapshots that all ranks had staged
// when their epoch ended are settled in a later epoch.
// The destructor frees the handles: snapshots that were handed over continue by themselves. It
// first waits for copies in flight from a GPU, kLinkTimeoutMs at most.
#pragma once

#include <ckpt/client.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "formats/base/snapshot_timings.h"
#include "trainer/checkpoint/device_link.h"
#include "trainer/checkpoint/state_memory.h"

namespace moetrain {

struct SnapshotOutcome {
  uint64_t step = 0;
  uint64_t epoch = 0;  // in which it was taken
  bool durable = false;
  std::string reason;  // why it is not durable
  ckpt::ErrorDetail detail = ckpt::ErrorDetail::kNone;
  std::string alarms;     // anomalies that ckptd found in it
  uint64_t bytes = 0;     // of this rank
  double durable_ms = 0;  // from begin() until this rank learned that it is durable
  ckpt::SnapshotTimings timings;
};

class Snapshotter {
 public:
  // Policy of begin() and fill() if ckptd has not written earlier snapshots yet: kInFlightMax of
  // them are in flight, or no slab is free.
  struct BackPressure {
    ckpt_out_of_slabs policy = CKPT_SLABS_WAIT;
    // With CKPT_SLABS_WAIT: limit for an earlier snapshot and the first slab together; its rest
    // also limits each further slab.
    uint32_t wait_ms_max = 10'000;
    // Limit for a ckptd that does not answer (DaemonPatience); 0: only the waits above.
    uint32_t silence_ms_max = 0;
  };
  // Session and link outlive it; `epoch` has been joined. `link` is null if the state is in host
  // memory.
  Snapshotter(ckpt::client::Session& session, uint32_t rank, DeviceLink* link = nullptr,
              uint64_t epoch = 0)
      : session_(session), rank_(rank), link_(link), epoch_(epoch) {}
  ~Snapshotter();
  // Moves to a later epoch of the group. Precondition: nothing is begun and not filled.
  void enter_epoch(uint32_t rank, uint64_t epoch);

  // Contents of a snapshot. Equal on every rank, except fields that only one rank gives.
  struct Request {
    uint64_t step = 0;
    uint32_t attempt = 0;  // distinguishes repeated attempts at one step
    std::vector<uint32_t> units;
    std::vector<uint32_t> memory_units;    // units that are not written
    std::vector<ckpt_fragment> fragments;  // of all ranks
    std::vector<ckpt::client::Metric> metrics;
    std::vector<ckpt_expert_tokens> expert_tokens;
    std::vector<uint64_t> expert_lost;  // by expert_tokens; empty: none was lost
    uint64_t staleness_max = 0;         // steps; an older expert raises an alarm
    uint64_t plan_ns = 0;               // time taken to make the plan
  };
  // Opens a snapshot; fill or drop it before the next begin(). Every rank of the epoch takes the
  // same steps. Waits only for an earlier snapshot, by policy, and for a lost ckptd to return. On
  // failure there is nothing to fill; the other ranks should drop theirs.
  Status begin(Request request, const BackPressure& pressure);
  bool begun() const { return begun_.has_value(); }
  // Copies this rank's share of the units in their current state, and hands it over. On failure
  // this rank's part is abandoned and nothing is in flight for the step; the other ranks should
  // abandon theirs.
  Status fill(const StateMemory& memory);
  // Aborts a snapshot that was begun and not filled, if there is one.
  void drop(const std::string& reason);

  // Call before changing units: the device first copies the parts that fill() has not copied yet.
  void before_write(std::span<const uint32_t> units);
  // Hands over parts that have arrived from the device. An error is the device's.
  Status poll();

  // Snapshots that became durable or failed since the last call. Poll the session for news.
  std::vector<SnapshotOutcome> settled();

  // Another rank could not contribute: aborts this rank's part, if it is still in flight. The
  // snapshot will be settled as failed with this reason.
  void abandon(uint64_t step, const std::string& reason);

  // The waits below end once this returns true, for example because the group is lost. They call it
  // repeatedly. Snapshots in flight stay so.
  void set_abort_waits(std::function<bool()> abort_waits) { abort_waits_ = std::move(abort_waits); }

  // Waits until the step's snapshot, if it is in flight, is durable or has failed, at most this
  // long. The outcome is in settled().
  void await_settled(uint64_t step, uint32_t timeout_ms);

  // Waits until the step's snapshot is durable. kAborted with the reason if it failed;
  // kDeadlineExceeded if it is still in flight. Its outcome is not in settled() afterwards.
  Result<SnapshotOutcome> wait(uint64_t step, uint32_t timeout_ms);

  // Waits for all snapshots in flight, and returns how each ended. A snapshot still in flight at
  // the timeout is not in the result.
  std::vector<SnapshotOutcome> drain(uint32_t timeout_ms);
  // Time for which the newest snapshot blocked training, without the copy.
  struct Waits {
    double room_ms = 0;   // wait for an earlier snapshot to be written
    double slabs_ms = 0;  // wait for a free slab, or for ckptd
    uint32_t open = 0;    // earlier snapshots that were not durable yet
  };
  const Waits& waits() const { return waits_; }
  // True if the step's snapshot is neither durable nor failed, as far as settled() has reported.
  bool in_flight(uint64_t step) const;

 private:
  struct Begun {
    uint64_t step;
    std::vector<ckpt_fragment> fragments;
    ckpt::client::Snapshot handle;
  };
  struct InFlight {
    uint64_t step;
    uint64_t epoch;
    ckpt::client::Snapshot handle;
  };
  // ckptd keeps four snapshots of a run open; one place is reserved for a late abort.
  static constexpr size_t kInFlightMax = 3;
  // Timeout for copies in flight to reach the arena. Tens of gigabytes do in a second.
  static constexpr uint32_t kLinkTimeoutMs = 10'000;
  static constexpr double kWaitSliceMs = 20;  // interval of abort_waits_ calls

  Status await_durable(ckpt::client::Snapshot& handle, double timeout_ms) const;
  Status drain_link(uint32_t timeout_ms);
  Status limit_in_flight(uint64_t step, const BackPressure& pressure);
  Status copy(ckpt::client::Snapshot& snapshot, const std::vector<ckpt_fragment>& fragments,
              const StateMemory& memory);
  void forget(InFlight& snapshot);
  static SnapshotOutcome outcome_of(const InFlight& snapshot);

  ckpt::client::Session& session_;
  uint32_t rank_;
  DeviceLink* const link_;
  uint64_t epoch_;
  std::optional<Begun> begun_;
  std::deque<InFlight> in_flight_;
  Waits waits_;
  std::function<bool()> abort_waits_;
};

}  // namespace moetrain
