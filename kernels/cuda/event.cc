#include "kernels/cuda/event.h"

#include <cuda_runtime.h>

#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) (void)cudaEventDestroy(handle_);
}

Status CudaEvent::make() {
  return cuda_status(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "an event");
}

Status CudaEvent::record(CUstream_st* stream) {
  return cuda_status(cudaEventRecord(handle_, stream), "recording an event");
}

Status CudaEvent::hold(CUstream_st* stream) const {
  return cuda_status(cudaStreamWaitEvent(stream, handle_, 0), "waiting for an event");
}

Result<bool> CudaEvent::happened() const {
  const cudaError_t error = cudaEventQuery(handle_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  CKPT_TRY(cuda_status(error, "asking for an event"));
  return true;
}

}  // namespace ckpt::kernels
