// RestoreBuffers: the queues and the memory of restores into device memory, kept from one restore
// to the next. Making them takes milliseconds, and to free device memory stops the whole device.
//
// One restore uses them at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/src/cuda/cufile.h"
#include "formats/base/result.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {

// Memory of the device and as much pinned memory of the host, that are copies of one another.
template <typename T>
struct MirroredArray {
  kernels::DeviceArray<T> device;
  kernels::PinnedArray<T> host;
  static Result<MirroredArray> make(size_t size) {
    MirroredArray made;
    CKPT_ASSIGN(made.device, kernels::DeviceArray<T>::make(size));
    CKPT_ASSIGN(made.host, kernels::PinnedArray<T>::make(size));
    return made;
  }
  size_t size() const { return host.size(); }
};

// How much a slot must have room for.
struct RestoreSlotSize {
  uint64_t bytes = 0;      // of a window
  size_t table_bytes = 0;  // of its unpacks
  size_t crcs = 0;
};

// Takes one window at a time.
class RestoreSlot {
 public:
  kernels::DeviceArray<std::byte> memory;
  MirroredArray<std::byte> tables;
  MirroredArray<uint32_t> crc;  // of each piece, and the number of those that are wrong
  CuFile::Buffer registered;    // `memory`, once cuFile reads into it
  kernels::CudaEvent copied;
  kernels::CudaEvent unpacked;

  Status make_events();
  // Grows what is too small. Nothing uses the slot now. `bytes_max`: the size that no window
  // exceeds, or 0.
  Status fit(const RestoreSlotSize& size, uint64_t bytes_max);
  // Frees the memory that it grew out of.
  void drop_outgrown() { outgrown_ = {}; }

 private:
  // Stays until the restore has ended: to free device memory would wait for the other slots' work.
  struct Outgrown {
    std::vector<kernels::DeviceArray<std::byte>> memory;
    std::vector<MirroredArray<std::byte>> tables;
    std::vector<MirroredArray<uint32_t>> crc;
  };
  Outgrown outgrown_;
};

class RestoreBuffers {
 public:
  // A third, so that a copy is queued behind the one that runs while the window before is unpacked.
  static constexpr size_t kSlots = 3;

  // timeout_ms: of what waits for the device when this ends.
  static Result<std::unique_ptr<RestoreBuffers>> make(int device, uint32_t timeout_ms);

  kernels::CudaQueue& copy() { return *copy_; }
  kernels::CudaQueue& unpack() { return *unpack_; }
  kernels::CudaEvent& begun() { return begun_; }
  RestoreSlot& slot(size_t number) { return slots_[number % kSlots]; }
  // After a restore: the slots keep what they have grown to, and no more.
  void drop_outgrown();

 private:
  RestoreBuffers() = default;
  Status prepare(int device, uint32_t timeout_ms);

  kernels::CudaEvent begun_;
  std::array<RestoreSlot, kSlots> slots_;
  // Behind what their work uses, so that they end, and wait for it, before.
  std::unique_ptr<kernels::CudaQueue> copy_;
  std::unique_ptr<kernels::CudaQueue> unpack_;
};

}  // namespace ckpt::lib
