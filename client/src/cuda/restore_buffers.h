// RestoreBuffers: the queues and the memory of restores into device memory, kept from one restore
// to the next. Creating them takes milliseconds, and freeing device memory stops the whole device.
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

// Memory of the device, and pinned host memory of the same size that mirrors it.
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

// Required capacity of a slot.
struct RestoreSlotSize {
  uint64_t bytes = 0;      // of a window
  size_t table_bytes = 0;  // of its unpacks
  size_t crcs = 0;
};

// Buffers of one window.
class RestoreSlot {
 public:
  kernels::DeviceArray<std::byte> memory;
  MirroredArray<std::byte> tables;
  MirroredArray<uint32_t> crc;  // one per range, and the number of mismatches
  CuFile::Buffer registered;    // `memory`, once cuFile reads into it
  kernels::CudaEvent copied;
  kernels::CudaEvent unpacked;

  Status make_events();
  // Grows members that are too small. Precondition: nothing uses the slot. `bytes_max`: the size
  // that no window exceeds, or 0.
  Status fit(const RestoreSlotSize& size, uint64_t bytes_max);
  // Frees outgrown memory.
  void drop_outgrown() { outgrown_ = {}; }

 private:
  // Kept until the restore has ended: freeing device memory would wait for the other slots' work.
  struct Outgrown {
    std::vector<kernels::DeviceArray<std::byte>> memory;
    std::vector<MirroredArray<std::byte>> tables;
    std::vector<MirroredArray<uint32_t>> crc;
  };
  Outgrown outgrown_;
};

class RestoreBuffers {
 public:
  // Three: one window is unpacked and one is copied while the next copy is queued.
  static constexpr size_t kSlots = 3;

  // timeout_ms: limit of the destructor's waits for the device.
  static Result<std::unique_ptr<RestoreBuffers>> make(int device, uint32_t timeout_ms);

  kernels::CudaQueue& copy() { return *copy_; }
  kernels::CudaQueue& unpack() { return *unpack_; }
  kernels::CudaEvent& begun() { return begun_; }
  RestoreSlot& slot(size_t number) { return slots_[number % kSlots]; }
  // Call after a restore: frees all outgrown memory.
  void drop_outgrown();

 private:
  RestoreBuffers() = default;
  Status prepare(int device, uint32_t timeout_ms);

  kernels::CudaEvent begun_;
  std::array<RestoreSlot, kSlots> slots_;
  // Declared after the memory: the queues are destroyed first, and wait for their work.
  std::unique_ptr<kernels::CudaQueue> copy_;
  std::unique_ptr<kernels::CudaQueue> unpack_;
};

}  // namespace ckpt::lib
