// Captures of streams into graphs. A graph is one stream's work in its order; a capture that spans
// several streams is not emulated.
#include "tests/support/cuda_emulator/emulator.h"

struct CUgraph_st {
  std::vector<CUstream_st::Work> work;
};
struct CUgraphExec_st {
  std::vector<CUstream_st::Work> work;
};

namespace cuda_emulator {
namespace {

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// True if the capture forbids the calling thread calls that could wait or allocate. The rule is
// that of cudaThreadExchangeStreamCaptureMode in CUDA's documentation.
bool forbids(const CUstream_st::Capture& capture) {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.begun_by == std::this_thread::get_id()) {
    return capture.mode != cudaStreamCaptureModeRelaxed;
  }
  return capture_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

// A blocking stream of the current device that is being captured; null if there is none.
CUstream_st* captured_blocking_stream() {
  for (cudaStream_t stream : device().streams) {
    if (stream->blocking && stream->capture != nullptr && stream->device == current_device()) {
      return stream;
    }
  }
  return nullptr;
}

}  // namespace

cudaError_t check_no_capture() {
  bool forbidden = false;
  for (cudaStream_t stream : device().streams) {
    if (stream->capture == nullptr || !forbids(*stream->capture)) continue;
    stream->capture->valid = false;
    forbidden = true;
  }
  return forbidden ? note(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t check_can_take_work(cudaStream_t stream) {
  if (stream == nullptr) {
    CUstream_st* const captured = captured_blocking_stream();
    if (captured == nullptr) return cudaSuccess;
    captured->capture->valid = false;
    return note(cudaErrorStreamCaptureImplicit);
  }
  const bool valid = stream->capture == nullptr || stream->capture->valid;
  return valid ? cudaSuccess : note(cudaErrorStreamCaptureInvalidated);
}

cudaError_t check_not_captured(cudaStream_t stream) {
  if (stream == nullptr || stream->capture == nullptr) return cudaSuccess;
  stream->capture->valid = false;
  return note(cudaErrorStreamCaptureUnsupported);
}

}  // namespace cuda_emulator

using cuda_emulator::begin_call;
using cuda_emulator::check_can_take_work;
using cuda_emulator::Lock;
using cuda_emulator::lock;
using cuda_emulator::note;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, cuda_emulator::capture_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock hold(lock());
  *status = cudaStreamCaptureStatusNone;
  if (stream == nullptr) {
    const bool implicit = cuda_emulator::captured_blocking_stream() != nullptr;
    return implicit ? note(cudaErrorStreamCaptureImplicit) : cudaSuccess;
  }
  if (stream->capture != nullptr) {
    *status =
        stream->capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  }
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (stream == nullptr) return note(cudaErrorStreamCaptureUnsupported);
  if (stream->capture != nullptr) return note(cudaErrorInvalidValue);
  stream->capture = std::make_unique<CUstream_st::Capture>();
  stream->capture->mode = mode;
  stream->capture->begun_by = std::this_thread::get_id();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock hold(lock());
  *graph = nullptr;
  if (const cudaError_t error = begin_call()) return error;
  if (stream == nullptr || stream->capture == nullptr) return note(cudaErrorInvalidValue);
  const auto capture = std::exchange(stream->capture, nullptr);
  if (!capture->valid) return note(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(capture->work)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *exec = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (const cudaError_t error = check_can_take_work(stream)) return error;
  for (const CUstream_st::Work& work : exec->work) cuda_emulator::enqueue(stream, work.run);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
