// Snapshotter: takes one rank's share of snapshots, asynchronously.
//
// begin() asks ckptd for slabs and does not wait for its answer, so the caller can do something
// else while it comes. fill() blocks for the copy into the arena (and, by policy, for slabs), or,
// where the state is on a GPU, for no copy at all: before_write() then holds the device. Writing,
// committing and the answer come later, seen through Session::poll() and settled(). A snapshot that
// fails is an event to be reported, never a reason to stop training. Lives as long as the group
// goes on: snapshots that all ranks had staged as their epoch ended are settled in a later one.
// Destroying it gives up the handles: snapshots that were handed over go on by themselves. What is
// still on its way from a GPU is waited for first, kLinkTimeoutMs at most.
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
#include "trainer/checkpoint/device_link.h"
#include "trainer/checkpoint/state_memory.h"

namespace moetrain {

struct SnapshotOutcome {
  uint64_t step = 0;
  uint64_t epoch = 0;  // that it was taken in
  bool durable = false;
  std::string reason;  // why not
  std::string alarms;  // what ckptd found wrong with it all the same
  uint64_t bytes = 0;  // of this rank
  double stall_ms = 0;
  double durable_ms = 0;  // from begin() until this rank learned of it
};

class Snapshotter {
 public:
  // What begin() and fill() do when ckptd has not written the earlier ones yet: kInFlightMax of
  // them are on their way, or no slab is free.
  struct BackPressure {
    ckpt_out_of_slabs policy = CKPT_SLABS_WAIT;
    // With CKPT_SLABS_WAIT: for an earlier snapshot and the first slab together; then what is left
    // of it for each further slab.
    uint32_t wait_ms_max = 10'000;
    // For a ckptd that does not answer (DaemonPatience); 0: as long as the waits above say.
    uint32_t silence_ms_max = 0;
  };
  // Session and link outlive it; `epoch` has been joined. `link` is null where the state is in host
  // memory.
  Snapshotter(ckpt::client::Session& session, uint32_t rank, DeviceLink* link = nullptr,
              uint64_t epoch = 0)
      : session_(session), rank_(rank), link_(link), epoch_(epoch) {}
  ~Snapshotter();
  // A later epoch has been joined, in which the group goes on; nothing is begun and not filled.
  void go_on(uint32_t rank, uint64_t epoch);

  // What to take, the same on every rank but for what only one rank gives.
  struct Request {
    uint64_t step = 0;
    uint32_t attempt = 0;  // tells repeated attempts at one step apart
    std::vector<uint32_t> units;
    std::vector<uint32_t> memory_units;    // those of them that are not written
    std::vector<ckpt_fragment> fragments;  // of all ranks
    std::vector<ckpt::client::Metric> metrics;
    std::vector<ckpt_expert_tokens> expert_tokens;
    std::vector<uint64_t> expert_lost;  // of each of these; empty: none was lost
    uint64_t staleness_max = 0;         // steps; an expert that is older raises an alarm
  };
  // Opens a snapshot; it is filled or dropped before the next one is begun. Every rank of the epoch
  // takes the same steps. Waits only for an earlier snapshot, by policy, and for a ckptd that is
  // away. On failure there is nothing to fill; the other ranks should drop theirs.
  Status begin(Request request, const BackPressure& pressure);
  bool begun() const { return begun_.has_value(); }
  // Copies this rank's share of the units, as they are now, and hands it over. On failure this
  // rank's part is abandoned and nothing is in flight for the step; the other ranks should abandon
  // theirs.
  Status fill(const StateMemory& memory);
  // Gives up what was begun and not filled, if anything.
  void drop(const std::string& reason);

  // Before units are changed: what fill() has not copied of them yet, the device copies first.
  void before_write(std::span<const uint32_t> units);
  // Hands over what has come from the device. An error is the device's.
  Status poll();

  // Those that are durable or failed since the last call. Looks at no socket: poll the session.
  std::vector<SnapshotOutcome> settled();

  // Another rank could not contribute: gives up this rank's part, if it is still in flight. It will
  // be settled as failed with this reason.
  void abandon(uint64_t step, const std::string& reason);

  // Whoever waits below waits in vain once this is true, since the group is lost say; it is asked
  // while they wait. What is in flight stays so.
  void give_up_when(std::function<bool()> in_vain) { in_vain_ = std::move(in_vain); }

  // Waits until the step's snapshot, if it is in flight, is durable or has failed, at most this
  // long. The outcome is in settled().
  void await_settled(uint64_t step, uint32_t timeout_ms);

  // Waits until the step's snapshot is durable. kAborted with the reason if it failed;
  // kDeadlineExceeded if it is still in flight. Its outcome is not in settled() afterwards.
  Result<SnapshotOutcome> wait(uint64_t step, uint32_t timeout_ms);

  // Waits for all that are in flight, and tells how each ended; one that is still in flight after
  // the time is none of them.
  std::vector<SnapshotOutcome> drain(uint32_t timeout_ms);
  // How long the newest snapshot kept training waiting, the copy apart.
  struct Waits {
    double room_ms = 0;   // for an earlier snapshot to be written
    double slabs_ms = 0;  // for a free slab, or for ckptd
    uint32_t open = 0;    // earlier ones that were not durable yet
  };
  const Waits& waits() const { return waits_; }
  // Is the step's snapshot neither durable nor failed, as far as settled() has told?
  bool in_flight(uint64_t step) const;

 private:
  struct Begun {
    uint64_t step;
    double stall_ms;  // so far
    std::vector<ckpt_fragment> fragments;
    ckpt::client::Snapshot handle;
  };
  struct InFlight {
    uint64_t step;
    uint64_t epoch;
    double stall_ms;
    ckpt::client::Snapshot handle;
  };
  // The daemon keeps four of a run open; one place stays free for a late abort.
  static constexpr size_t kInFlightMax = 3;
  // For what is on its way to reach the arena. Tens of gigabytes do in a second.
  static constexpr uint32_t kLinkTimeoutMs = 10'000;
  static constexpr double kAskMs = 20;  // whether it is in vain

  Status await_durable(ckpt::client::Snapshot& handle, double timeout_ms) const;
  Status drain_link(uint32_t timeout_ms);
  Status make_room(uint64_t step, const BackPressure& pressure);
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
  std::function<bool()> in_vain_;
};

}  // namespace moetrain
