// Between the parts of the emulator.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <map>
#include <mutex>
#include <set>

// An event is done when the stream it was recorded on has come as far as it had then.
struct CUevent_st {
  cudaStream_t stream = nullptr;
  uint64_t position = 0;  // in the stream; 0: not recorded yet, which counts as done
};

struct CUstream_st {
  struct Work {
    std::function<void()> run;
    cudaStream_t behind = nullptr;  // first that stream has to come to `position`
    uint64_t position = 0;
  };
  std::deque<Work> queue;
  uint64_t queued = 0;
  uint64_t done = 0;
  bool eager = false;
  bool stuck = false;
  int priority = 0;
};

namespace cuda_emulator {

// Runs every thread of every block; the caller holds nothing.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

// One lock for everything: ranks are threads, and the device takes them in turn. Recursive, since a
// kernel runs under it.
std::recursive_mutex& lock();
using Lock = std::lock_guard<std::recursive_mutex>;

// What follows is used under the lock.
struct Device {
  CUstream_st default_stream;
  std::set<cudaStream_t> streams;
  std::map<const void*, size_t> allocated;  // bytes of each
  std::map<const void*, size_t> registered;
  std::set<cudaEvent_t> events;
  cudaError_t last_error = cudaSuccess;
  uint64_t eager = 0;  // of the streams that are made next, the first in bit 0
  uint64_t stuck = 0;  // in the same way
  uint64_t calls = 0;
  uint64_t first_failure = 0;
  uint64_t failures = 0;
};
Device& device();

// Remembers an error for cudaGetLastError.
cudaError_t note(cudaError_t error);
// What every call begins with: an error if the test wants it to fail.
cudaError_t begin_call();
void run_all();

}  // namespace cuda_emulator
