// CaptureScope: keeps the library's calls out of the CUDA graph captures of other code.
//
// While any thread captures a stream in CUDA's global mode, most calls of CUDA (queries of events,
// allocations, synchronous copies) fail in every thread, and invalidate that capture.
#pragma once

#include "formats/base/result.h"

struct CUstream_st;

namespace ckpt::lib {

// Allows the calling thread to make such calls during a capture (cudaStreamCaptureModeRelaxed); the
// destructor restores the thread's mode. Every entry point of libckpt_cuda, and every thread that
// it starts, is inside a CaptureScope.
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  int mode_;  // cudaStreamCaptureMode that the destructor restores
  bool changed_ = false;
};

// kFailedPrecondition if `stream` is being captured, or is the default stream while a blocking
// stream of the device is: `call` would become part of the graph, or invalidate it. The capture is
// not affected.
Status check_not_capturing(CUstream_st* stream, const char* call);

}  // namespace ckpt::lib
