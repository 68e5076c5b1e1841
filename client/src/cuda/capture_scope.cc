#include "client/src/cuda/capture_scope.h"

#include <cuda_runtime.h>

#include "kernels/cuda/queue.h"

namespace ckpt::lib {

CaptureScope::CaptureScope() : mode_(cudaStreamCaptureModeRelaxed) {
  auto mode = static_cast<cudaStreamCaptureMode>(mode_);
  changed_ = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  if (!changed_) (void)cudaGetLastError();  // the calls inside the scope will report it
  mode_ = static_cast<int>(mode);
}

CaptureScope::~CaptureScope() {
  if (!changed_) return;
  auto mode = static_cast<cudaStreamCaptureMode>(mode_);
  if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) (void)cudaGetLastError();
}

Status check_not_capturing(CUstream_st* stream, const char* call) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t asked = cudaStreamIsCapturing(stream, &status);
  if (asked == cudaErrorStreamCaptureImplicit) {
    (void)cudaGetLastError();
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: the default stream cannot be used while a blocking stream is captured "
                      "into a CUDA graph; call it before the capture begins or after it has ended, "
                      "or pass a stream made with cudaStreamNonBlocking",
                      call);
  }
  CKPT_TRY(kernels::cuda_status(asked, "asking whether a stream is being captured"));
  if (status == cudaStreamCaptureStatusNone) return ok_status();
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: the stream is being captured into a CUDA graph, which cannot hold this "
                    "call; call it before cudaStreamBeginCapture or after cudaStreamEndCapture, "
                    "between launches of the graph",
                    call);
}

}  // namespace ckpt::lib
