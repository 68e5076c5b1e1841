// CudaEvent: a point in a stream's work, to wait for on the device or to ask for. Includes no CUDA
// header, so that code above the kernels compiles without.
#pragma once

#include <utility>

#include "formats/base/result.h"

struct CUevent_st;
struct CUstream_st;

namespace ckpt::kernels {

// Of the device that was current when it was made. Its end waits for nothing: what waits on the
// device for it goes on waiting.
class CudaEvent {
 public:
  CudaEvent() = default;
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  CudaEvent(CudaEvent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

  // Without times: cheap to record and to wait for. Once, before anything else.
  Status make();
  // Happens when what is queued on the stream so far is done. Recorded again, it means the new.
  Status record(CUstream_st* stream);
  // The stream goes on when what was recorded last has happened; at once if nothing was.
  Status hold(CUstream_st* stream) const;
  // Does not wait. True if nothing was recorded. The error of whatever has failed on the device.
  Result<bool> happened() const;

 private:
  CUevent_st* handle_ = nullptr;
};

}  // namespace ckpt::kernels
