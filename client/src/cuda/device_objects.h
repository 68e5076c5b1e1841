// What the stager holds of CUDA, owned: events, pinned memory, and what one staging needs of both.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "kernels/cuda/array.h"

namespace ckpt::lib {

// kUnavailable with CUDA's sentence.
Status cuda_check(cudaError_t error, const char* what);

class Event {
 public:
  Event() = default;
  ~Event() {
    if (handle_ != nullptr) (void)cudaEventDestroy(handle_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Without times: cheap to record and to wait for. Once, before anything else.
  Status make() {
    return cuda_check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "an event");
  }
  Status record(cudaStream_t stream) {
    return cuda_check(cudaEventRecord(handle_, stream), "recording an event");
  }
  // The stream goes on when what was recorded last has happened.
  Status hold(cudaStream_t stream) const {
    return cuda_check(cudaStreamWaitEvent(stream, handle_, 0), "waiting for an event");
  }
  Result<bool> happened() const;

 private:
  cudaEvent_t handle_ = nullptr;
};

// Host memory that was there before, pinned as long as this lives.
class PinnedRange {
 public:
  static Result<PinnedRange> pin(MutableByteView bytes);
  PinnedRange(PinnedRange&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  PinnedRange& operator=(PinnedRange&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedRange() {
    if (!bytes_.empty()) (void)cudaHostUnregister(bytes_.data());
  }
  const std::byte* data() const { return bytes_.data(); }

 private:
  PinnedRange() = default;
  MutableByteView bytes_;
};

// CRCs of all places on both sides, and events of all chunks. Used again by later stagings.
class StagingMemory {
 public:
  static Result<std::unique_ptr<StagingMemory>> make(size_t chunks, size_t places);
  ~StagingMemory() {
    if (host_crc != nullptr) (void)cudaFreeHost(host_crc);
  }
  bool fits(size_t chunks, size_t places) const {
    return chunks <= gathered.size() && places <= crc.size();
  }

  kernels::DeviceArray<uint32_t> crc;
  uint32_t* host_crc = nullptr;
  std::deque<Event> gathered;
  std::deque<Event> drained;

 private:
  StagingMemory() = default;
};

}  // namespace ckpt::lib
