// Restorer: windows of the arena -> device memory, checked and scattered there. One per restore.
//
//   copy queue     window k -> slot     window k+1 -> its slot     ...
//                      |
//                      +--- copied: the window is released
//                      |
//   unpack queue       +-> CRCs of window k, what agrees is scattered, CRCs to the host
//                                                                       |
//                        unpacked: the CRCs are compared, the slot is free
//
// Used from the session's thread. When it fails, the device may still be writing: what it writes to
// must stay until come_to_rest() has succeeded, or this object has gone.
#pragma once

#include <ckpt/ckpt_cuda.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/src/cuda/device_objects.h"
#include "client/src/cuda/unpack_plan.h"
#include "client/src/deadline.h"
#include "formats/base/result.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {

class Restorer {
 public:
  struct Options {
    int device = 0;
    uint32_t timeout_ms = 0;  // without any progress of the device
  };
  static Result<std::unique_ptr<Restorer>> open(ckpt_session* session, PinnedArena& arena,
                                                const Options& options);

  // Takes all windows of `restore`, whose ranges are the destinations. What is queued on `stream`
  // comes first. When it returns without an error, every byte is there and was checked.
  Status run(ckpt_restore* restore, std::span<const ckpt_cuda_destination> destinations,
             CUstream_st* stream);
  Status come_to_rest(uint32_t timeout_ms);

 private:
  // A third, so that a copy is queued behind the one that runs while the window before is unpacked.
  static constexpr size_t kSlots = 3;
  struct Slot {
    kernels::DeviceArray<std::byte> memory;
    kernels::DeviceArray<uint32_t> crc;  // of each piece, and the number of those that are wrong
    kernels::PinnedArray<uint32_t> host_crc;
    std::vector<kernels::DeviceArray<std::byte>> outgrown;
    std::vector<kernels::DeviceArray<uint32_t>> outgrown_crc;
    std::vector<kernels::PinnedArray<uint32_t>> outgrown_host_crc;
    kernels::CudaEvent copied;
    kernels::CudaEvent unpacked;
    Status fit(uint64_t bytes, size_t pieces);
  };
  struct Flight {
    uint64_t window = 0;
    std::vector<ckpt_restore_piece> pieces;
    UnpackPlan plan;
    Slot* slot = nullptr;
    bool released = false;
  };

  Restorer(ckpt_session* session, PinnedArena& arena, const Options& options)
      : session_(session), arena_(arena), options_(options) {}
  Status prepare();
  Status launch(const ckpt_restore_window& window,
                std::span<const ckpt_cuda_destination> destinations);
  Status unpack(const UnpackPlan& plan, Slot& slot);
  Result<bool> take_arrived(ckpt_restore* restore);
  static void compare(ckpt_restore* restore, const Flight& flight);

  ckpt_session* const session_;
  PinnedArena& arena_;
  const Options options_;
  kernels::CudaEvent begun_;
  std::array<Slot, kSlots> slots_;
  size_t launched_ = 0;
  std::deque<Flight> flights_;
  // Behind what their work uses, so that they end, and wait for it, before.
  std::unique_ptr<kernels::CudaQueue> copy_;
  std::unique_ptr<kernels::CudaQueue> unpack_;
};

}  // namespace ckpt::lib
