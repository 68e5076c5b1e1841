// CUDA graphs: how the library keeps out of the captures of others.
//
// While any thread captures a stream in CUDA's global mode, most calls of CUDA (queries of events,
// allocations, synchronous copies) fail, whoever makes them, and invalidate that capture.
#pragma once

#include "formats/base/result.h"

struct CUstream_st;

namespace ckpt::lib {

// Lets the calling thread make such calls beside a capture as long as it lives
// (cudaStreamCaptureModeRelaxed); then the thread's mode is again what it was. Every entry of
// libckpt_cuda, and every thread that it starts, is inside one.
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  int mode_;  // cudaStreamCaptureMode: the thread's own, while this lives
  bool changed_ = false;
};

// kFailedPrecondition if `stream` is being captured, or is the default stream while a blocking
// stream of the device is: `call` would become part of the graph, or invalidate it. The capture
// stays as it is.
Status check_not_capturing(CUstream_st* stream, const char* call);

}  // namespace ckpt::lib
