// Between the parts of the emulator.
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

// An event is done when the stream it was recorded on has come as far as it had then.
struct CUevent_st {
  int device = 0;
  cudaStream_t stream = nullptr;
  uint64_t position = 0;  // in the stream; 0: not recorded yet, which counts as done
  bool captured = false;  // recorded last in a stream that was being captured
};

struct CUstream_st {
  struct Work {
    std::function<void()> run;
    cudaStream_t behind = nullptr;  // first that stream has to come to `position`
    uint64_t position = 0;
    std::function<bool()> ready = {};  // and this has to be true
  };
  // Between cudaStreamBeginCapture and cudaStreamEndCapture.
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

// Runs every thread of every block; the caller holds nothing.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

// One lock for everything: ranks are threads, and the device takes them in turn. Recursive, since a
// kernel runs under it.
std::recursive_mutex& lock();
using Lock = std::lock_guard<std::recursive_mutex>;

// The calling thread's current one; 0 if it has chosen none.
int current_device();

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  int fd = -1;  // of memory that other processes may open, or that one of them has
};

// By CUDA_EMULATOR_SHARES, which a test gives to programs that it starts: cudaMalloc makes memory
// that cudaIpcGetMemHandle can share.
bool shares_allocations();
// Null, and a descriptor or -1, if there is no memory.
void* allocate_shared(size_t bytes, int& fd);
void free_shared(void* at, const Allocation& memory);

// A function of the driver's, of a type that whoever asked for it knows; null if it is not
// emulated.
using AnyFunction = void (*)();
AnyFunction driver_function(std::string_view name);

// By CUDA_EMULATOR_DEVICES, which a test gives to programs that it starts; 1 without.
int devices_of_the_environment();

// All devices. What follows is used under the lock.
struct Device {
  int count = devices_of_the_environment();
  std::set<int> contexts;
  std::set<cudaStream_t> streams;
  std::map<const void*, Allocation> allocated;
  std::set<const void*> cuts;  // inside them: where cut_allocation() has begun another
  std::map<const void*, size_t> registered;
  std::set<cudaEvent_t> events;
  cudaError_t last_error = cudaSuccess;
  uint64_t eager = 0;  // of the streams that are made next, the first in bit 0
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
// What every call begins with: an error if the test wants it to fail. Most need a context of the
// current device, and make it.
enum class Context : uint8_t { kNeeded, kNotNeeded };
cudaError_t begin_call(Context context = Context::kNeeded);
// Calls that CUDA forbids while a stream is captured start with this: allocations, frees, waits,
// queries, synchronous copies. cudaErrorStreamCaptureUnsupported, and the capture is invalid, if
// the calling thread's capture mode does not allow the call.
cudaError_t check_no_capture();
// Calls that put work into `stream` ask this. The default stream cannot take work while a blocking
// stream is captured, and an invalid capture takes none.
cudaError_t check_can_take_work(cudaStream_t stream);
// Calls that wait for `stream`, query or destroy it ask this: no capture mode allows that for a
// stream that is being captured.
cudaError_t check_not_captured(cudaStream_t stream);
// Copies from and to [at, at + bytes) touch one registration of host memory at most, as CUDA wants.
cudaError_t check_registration(const void* at, size_t bytes);
// They reach over no place at which cut_allocation() has begun another allocation. Chunks of a pool
// that are mapped side by side are as one, on GPUs, too.
cudaError_t check_allocation(const void* at, size_t bytes);
// What the current device has to do.
void run_all();
// Queues work that cannot be done before `ready` says so, which it is asked under the lock.
void enqueue_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> work);
// As when somebody asks for the stream: one more piece of its work is done, if that can be.
void nudge(cudaStream_t stream);

}  // namespace cuda_emulator
