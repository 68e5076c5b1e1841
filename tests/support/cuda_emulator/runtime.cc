// Memory, streams and events. Work of a stream waits in its queue until somebody must have it done.
#include <deque>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "tests/support/cuda_emulator/control.h"
#include "tests/support/cuda_emulator/emulator.h"

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
};

namespace cuda_emulator {
namespace {

// One lock for everything: ranks are threads, and the device takes them in turn. Recursive, since a
// kernel runs under it.
std::recursive_mutex& lock() {
  static std::recursive_mutex mutex;
  return mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;

struct Device {
  CUstream_st default_stream;
  std::set<cudaStream_t> streams;
  std::set<void*> allocated;
  std::set<void*> registered;
  std::set<cudaEvent_t> events;
  cudaError_t last_error = cudaSuccess;
  uint64_t eager = 0;  // of the streams that are made next, the first in bit 0
  uint64_t calls = 0;
  uint64_t first_failure = 0;
  uint64_t failures = 0;
};
Device& device() {
  static Device the_device;
  return the_device;
}

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) device().last_error = error;
  return error;
}

void run_until(CUstream_st& stream, uint64_t position) {
  while (stream.done < position && !stream.queue.empty()) {
    CUstream_st::Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (work.behind != nullptr && device().streams.contains(work.behind)) {
      run_until(*work.behind, work.position);
    }
    if (work.run) work.run();
    ++stream.done;
  }
}

// Whatever need not wait, of the streams that are eager.
void run_eager() {
  const auto can_run = [](const CUstream_st& stream) {
    if (stream.queue.empty()) return false;
    const CUstream_st::Work& next = stream.queue.front();
    return next.behind == nullptr || !device().streams.contains(next.behind) ||
           next.behind->done >= next.position;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (cudaStream_t stream : device().streams) {
      for (; stream->eager && can_run(*stream); moved = true) run_until(*stream, stream->done + 1);
    }
  }
}

// What every call begins with: an error if the test wants it to fail.
cudaError_t begin_call() {
  run_eager();
  const uint64_t number = device().calls++;
  const bool fails =
      number >= device().first_failure && number - device().first_failure < device().failures;
  return fails ? note(cudaErrorLaunchFailure) : cudaSuccess;
}

void run_all() {
  for (cudaStream_t stream : device().streams) run_until(*stream, stream->queued);
}

void push(cudaStream_t stream, CUstream_st::Work work) {
  if (stream == nullptr) {
    run_all();
    if (work.run) work.run();
    return;
  }
  stream->queue.push_back(std::move(work));
  ++stream->queued;
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const Lock hold(lock());
  push(stream, {.run = std::move(work)});
}

void make_eager(uint64_t streams) {
  const Lock hold(lock());
  device().eager = streams;
}

void fail_calls(uint64_t first, uint64_t count) {
  const Lock hold(lock());
  device().calls = 0;
  device().first_failure = first;
  device().failures = count;
}

uint64_t calls_made() {
  const Lock hold(lock());
  return device().calls;
}

Holdings holdings() {
  const Lock hold(lock());
  return {device().allocated.size(), device().registered.size(), device().streams.size(),
          device().events.size()};
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  const dim3 grid = config.gridDim;
  const dim3 block = config.blockDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool valid = threads >= 1 && threads <= 1024 && grid.x >= 1 && grid.x <= 0x7fffffff &&
                     grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535 &&
                     config.dynamicSmemBytes == 0;
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (!valid) return note(cudaErrorInvalidValue);
  push(config.stream,
       {.run = [grid, block, thread = std::move(thread)] { run_grid(grid, block, thread); }});
  return cudaSuccess;
}

}  // namespace cuda_emulator

using cuda_emulator::begin_call;
using cuda_emulator::device;
using cuda_emulator::Lock;
using cuda_emulator::lock;
using cuda_emulator::note;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
  }
  return "unknown error";
}
cudaError_t cudaGetLastError() {
  const Lock hold(lock());
  return std::exchange(device().last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  const Lock hold(lock());
  return device().last_error;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int which) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  return which == 0 ? cudaSuccess : note(cudaErrorInvalidValue);
}
cudaError_t cudaGetDevice(int* which) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *which = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int which) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (which != 0) return note(cudaErrorInvalidValue);
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->totalGlobalMem = size_t{1} << 30;
  properties->multiProcessorCount = 2;
  properties->major = 8;
  properties->l2CacheSize = 1 << 20;
  properties->sharedMemPerBlock = 48 << 10;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *free = *total = size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  cuda_emulator::run_all();
  return cudaSuccess;
}

// Filled with what no test expects, so that nobody counts on zeros; of large ones the beginning.
cudaError_t cudaMalloc(void** at, size_t bytes) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *at = ::operator new (bytes, std::align_val_t{256}, std::nothrow);
  if (*at == nullptr) return note(cudaErrorMemoryAllocation);
  std::memset(*at, 0xa5, std::min(bytes, size_t{1} << 20));
  device().allocated.insert(*at);
  return cudaSuccess;
}
// Waits for all work, as CUDA's does.
cudaError_t cudaFree(void* at) {
  const Lock hold(lock());
  const cudaError_t error = begin_call();
  cuda_emulator::run_all();
  if (at != nullptr && device().allocated.erase(at) == 0) return note(cudaErrorInvalidValue);
  ::operator delete (at, std::align_val_t{256});
  return error;
}
cudaError_t cudaMallocHost(void** at, size_t bytes) { return cudaMalloc(at, bytes); }
cudaError_t cudaFreeHost(void* at) { return cudaFree(at); }
cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (at == nullptr || bytes == 0) return note(cudaErrorInvalidValue);
  if (!device().registered.insert(at).second) return note(cudaErrorHostMemoryAlreadyRegistered);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  const Lock hold(lock());
  const cudaError_t error = begin_call();
  cuda_emulator::run_all();
  return device().registered.erase(at) == 1 ? error : note(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (bytes == 0) return cudaSuccess;
  cuda_emulator::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  return cudaMemsetAsync(at, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (bytes == 0) return cudaSuccess;
  cuda_emulator::enqueue(stream, [=] { std::memset(at, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *stream = new CUstream_st;
  (*stream)->eager = (device().eager & 1) != 0;
  device().eager >>= 1;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock hold(lock());
  const cudaError_t error = begin_call();
  cuda_emulator::run_until(*stream, stream->queued);
  device().streams.erase(stream);
  delete stream;
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (stream == nullptr) return cudaDeviceSynchronize();
  cuda_emulator::run_until(*stream, stream->queued);
  return cudaSuccess;
}
// Time passes while somebody asks: each time one more piece of work is done.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (stream == nullptr || stream->done == stream->queued) return cudaSuccess;
  cuda_emulator::run_until(*stream, stream->done + 1);
  return stream->done == stream->queued ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  cuda_emulator::push(stream, {.behind = event->stream, .position = event->position});
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *event = new CUevent_st;
  device().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock hold(lock());
  const cudaError_t error = begin_call();
  if (device().events.erase(event) == 0) return note(cudaErrorInvalidValue);
  delete event;
  return error;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (stream == nullptr) cuda_emulator::run_all();
  *event = {stream, stream == nullptr ? 0 : stream->queued};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (event->stream != nullptr && device().streams.contains(event->stream)) {
    cuda_emulator::run_until(*event->stream, event->position);
  }
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (event->stream == nullptr || !device().streams.contains(event->stream)) return cudaSuccess;
  if (event->stream->done >= event->position) return cudaSuccess;
  cuda_emulator::run_until(*event->stream, event->stream->done + 1);
  return event->stream->done >= event->position ? cudaSuccess : cudaErrorNotReady;
}
// Nothing here is about speed.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}
