// Interfaces between the parts of the emulator.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

// An event is done once its stream has reached the position at which the event was recorded.
struct CUevent_st {
  int device = 0;
  cudaStream_t stream = nullptr;
  uint64_t position = 0;  // in the stream; 0: not recorded yet, which counts as done
  bool captured = false;  // recorded last in a stream that was being captured
};

struct CUstream_st {
  struct Work {
    std::function<void()> run;
    cudaStream_t behind = nullptr;  // that stream must reach `position` first
    uint64_t position = 0;
    std::function<bool()> ready = {};  // must return true, too
  };
  // State between cudaStreamBeginCapture and cudaStreamEndCapture.
  struct Capture {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id begun_by;
    bool valid = true;
    std::vector<Work> work;  // captured so far; none of it runs
  };
  int device = 0;
  std::deque<Work> queue;
  uint64_t queued = 0;
  uint64_t done = 0;
  bool eager = false;
  bool stuck = false;
  bool blocking = true;  // not cudaStreamNonBlocking: the default stream waits for it
  int priority = 0;
  std::unique_ptr<Capture> capture;  // null: not being captured
};

namespace cuda_emulator {

// Runs every thread of every block. The caller holds no lock.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

// One lock for everything: ranks are threads, and the device takes them in turn. Recursive, since a
// kernel runs under it.
std::recursive_mutex& lock();
using Lock = std::lock_guard<std::recursive_mutex>;

// The calling thread's current device; 0 if the thread has chosen none.
int current_device();

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  int fd = -1;  // of memory shared with other processes; -1: private memory
};

// True if CUDA_EMULATOR_SHARES is set, which tests do for programs that they start: cudaMalloc
// makes memory that cudaIpcGetMemHandle can share.
bool shares_allocations();
// Returns null, and sets `fd` to a descriptor or -1, if there is no memory.
void* allocate_shared(size_t bytes, int& fd);
void free_shared(void* at, const Allocation& memory);

// The driver's function of this name, which the caller casts to its type; null if it is not
// emulated.
using AnyFunction = void (*)();
AnyFunction driver_function(std::string_view name);

// CUDA_EMULATOR_DEVICES, which tests set for programs that they start; 1 without it.
int devices_of_the_environment();

// State of all devices. This and everything below is used under the lock.
struct Device {
  int count = devices_of_the_environment();
  std::set<int> contexts;
  std::set<cudaStream_t> streams;
  std::map<const void*, Allocation> allocated;
  std::set<const void*> cuts;  // boundaries that cut_allocation() has made inside them
  std::map<const void*, size_t> registered;
  std::set<cudaEvent_t> events;
  cudaError_t last_error = cudaSuccess;
  uint64_t eager = 0;  // one bit for each of the next streams, the first in bit 0
  uint64_t stuck = 0;  // in the same way
  uint64_t calls = 0;
  uint64_t slow_calls = 0;
  uint64_t copies = 0;
  uint64_t first_failure = 0;
  uint64_t failures = 0;
};
Device& device();

// Remembers an error for cudaGetLastError.
cudaError_t note(cudaError_t error);
// Start of every call: returns an error if the test wants the call to fail. Most calls need a
// context of the current device, and make it.
enum class Context : uint8_t { kNeeded, kNotNeeded };
cudaError_t begin_call(Context context = Context::kNeeded);
// Start of calls that CUDA forbids while a stream is captured: allocations, frees, waits, queries,
// synchronous copies. Returns cudaErrorStreamCaptureUnsupported, and invalidates the capture, if
// the calling thread's capture mode does not allow the call.
cudaError_t check_no_capture();
// Start of calls that put work into `stream`. The default stream cannot take work while a blocking
// stream is captured, and an invalid capture takes none.
cudaError_t check_can_take_work(cudaStream_t stream);
// Start of calls that wait for `stream`, query or destroy it: no capture mode allows them for a
// stream that is being captured.
cudaError_t check_not_captured(cudaStream_t stream);
// A copy from or to [at, at + bytes) may touch one registration of host memory at most, as in CUDA.
cudaError_t check_registration(const void* at, size_t bytes);
// A copy may not cross a boundary that cut_allocation() has made. Adjacent mapped chunks of a pool
// count as one allocation, as on GPUs.
cudaError_t check_allocation(const void* at, size_t bytes);
// Runs all work of the current device.
void run_all();
// Queues work that cannot run before `ready` returns true. `ready` is called under the lock.
void enqueue_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> work);
// Runs one more piece of the stream's work if it can run, as a query of the stream does.
void nudge(cudaStream_t stream);

}  // namespace cuda_emulator
