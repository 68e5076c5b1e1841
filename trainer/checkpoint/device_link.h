// DeviceLink: the way of snapshots and restores between GPU memory and the session's arena, which
// is libckpt_cuda's. Behind an interface, so that a program without CUDA needs no CUDA library.
//
// Staging does not stop the trainer: what is to be saved is gathered on the device while it trains
// on, and only who overwrites it waits, on the device too.
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
  bool on_host = false;  // not on the device: copied there by the call
};

// One per session, which outlives it, used from the device's thread. A failure of the device fails
// all snapshots that are being staged; every later call, and the device's next synchronize(), says
// so again.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  // Queues this rank's whole share of the snapshot, in any order of units, ascending within each.
  // The snapshot ends by itself; until poll() has seen that, its handle must live, or be retired.
  // On failure it has been aborted.
  virtual Status stage(ckpt::client::Snapshot& snapshot, const std::vector<LinkPiece>& pieces) = 0;

  // Runs `work` once, when the calling thread next waits for the device, which is busy by then; or
  // at the beginning of the next call of this link but retire(), if that is earlier. A later call
  // of this replaces it; empty: nothing.
  virtual void when_busy(std::function<void()> work) = 0;

  // Takes the handle of a snapshot that was staged and that nobody else wants any more: it lives
  // until the device has done with it.
  virtual void retire(ckpt::client::Snapshot snapshot) = 0;

  // The device does nothing more until the unit, of all that is being staged, may be overwritten.
  // Where it cannot be made to wait it does nothing more at all: the failure is its own, which its
  // next synchronize() says.
  virtual void wait_gathered(uint32_t unit) = 0;
  // The same for all units: before memory that held some of them is given to others.
  virtual void wait_all_gathered() = 0;

  // Hands over what has arrived in the arena, without waiting; with a timeout, waits until all has
  // (kDeadlineExceeded if not).
  virtual Status poll() = 0;
  virtual Status drain(uint32_t timeout_ms) = 0;

  // Fills device memory from a view; one answer for each piece, which are all on the device. When
  // it returns, every byte is there and has been checked.
  virtual Result<std::vector<ckpt::client::Restored>> restore(
      const ckpt::client::RestoreOptions& options, const std::vector<LinkPiece>& pieces) = 0;
};

// Pins the arena, which takes a while. `device` is one of make_cuda_device().
Result<std::unique_ptr<DeviceLink>> make_cuda_link(ckpt::client::Session& session, Device& device,
                                                   uint32_t timeout_ms);

}  // namespace moetrain
