// CudaEvent: a point in a stream's work, to wait for on the device or to query. Includes no CUDA
// header, so that code above the kernels compiles without CUDA.
#pragma once

#include <utility>

#include "formats/base/result.h"

struct CUevent_st;
struct CUstream_st;

namespace ckpt::kernels {

// Belongs to the device that was current in make(). The destructor does not wait: streams that wait
// for the event keep waiting.
class CudaEvent {
 public:
  CudaEvent() = default;
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  CudaEvent(CudaEvent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

  // Creates the event, without timestamps: cheap to record and to wait for. Call once, first.
  Status make();
  // Happens when all work queued on the stream so far is done. Recording again replaces the point.
  Status record(CUstream_st* stream);
  // Makes the stream wait for the point recorded last; no wait if none was recorded.
  Status hold(CUstream_st* stream) const;
  // Does not wait. True if nothing was recorded. Returns any error of the device's earlier work.
  Result<bool> happened() const;

 private:
  CUevent_st* handle_ = nullptr;
};

}  // namespace ckpt::kernels
