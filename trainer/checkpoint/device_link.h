// DeviceLink: copies snapshots and restores between GPU memory and the session's arena, by
// libckpt_cuda. An interface, so that a program without CUDA links no CUDA library.
//
// Staging does not block training: the device gathers the saved state while it trains on. Only work
// that overwrites ungathered state waits, and it waits on the device.
#pragma once

#include <ckpt/client.hpp>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trainer/device/device.h"

namespace moetrain {

// Bytes of a unit that are consecutive in memory.
struct LinkPiece {
  uint32_t unit = 0;
  uint64_t offset = 0;
  std::span<std::byte> bytes;
  bool on_host = false;  // in host memory: copied by the call itself
};

// One per session, which outlives it. Used from the device's thread. A failure of the device fails
// all snapshots being staged; every later call, and the device's next synchronize(), returns the
// error again.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  // Queues this rank's whole share of the snapshot, in any order of units, ascending within each.
  // The snapshot completes by itself. Until poll() has seen that, its handle must live, or be
  // passed to retire(). On failure the snapshot has been aborted.
  virtual Status stage(ckpt::client::Snapshot& snapshot, const std::vector<LinkPiece>& pieces) = 0;

  // Runs `work` once: at the calling thread's next wait for the device, which is then busy, or at
  // the start of the next call of this link except retire(), whichever is first. Replaces the work
  // of an earlier call; empty: no work.
  virtual void when_busy(std::function<void()> work) = 0;

  // Takes over the handle of a staged snapshot that the caller no longer needs. The handle lives
  // until the device has finished with the snapshot.
  virtual void retire(ckpt::client::Snapshot snapshot) = 0;

  // Makes the device wait, before later work, until all snapshots being staged have gathered this
  // unit. If that wait cannot be queued, the device fails: its next synchronize() returns the
  // error.
  virtual void wait_gathered(uint32_t unit) = 0;
  // The same for all units. Call this before memory of units is reused.
  virtual void wait_all_gathered() = 0;

  // poll() hands over the parts that have arrived in the arena, without waiting. drain() waits
  // until all parts have arrived; kDeadlineExceeded if they do not in time.
  virtual Status poll() = 0;
  virtual Status drain(uint32_t timeout_ms) = 0;

  // Fills device memory from a view. All pieces are on the device, and each has one result. On
  // return every byte is in place and has been checked.
  virtual Result<std::vector<ckpt::client::Restored>> restore(
      const ckpt::client::RestoreOptions& options, const std::vector<LinkPiece>& pieces) = 0;
};

// Pins the arena, which takes a while. make_cuda_device() made `device`.
Result<std::unique_ptr<DeviceLink>> make_cuda_link(ckpt::client::Session& session, Device& device,
                                                   uint32_t timeout_ms);

}  // namespace moetrain
