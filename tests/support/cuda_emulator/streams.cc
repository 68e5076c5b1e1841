// Streams and events. Work of a stream waits in its queue until a call needs it done, or until the
// test lets it run.
#include "tests/support/cuda_emulator/control.h"
#include "tests/support/cuda_emulator/emulator.h"

namespace cuda_emulator {
namespace {

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

// Runs all work of eager streams that does not have to wait.
void run_eager() {
  const auto can_run = [](const CUstream_st& stream) {
    if (stream.stuck || stream.queue.empty()) return false;
    const CUstream_st::Work& next = stream.queue.front();
    if (next.ready && !next.ready()) return false;
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

// Runs the stream's next piece of work, or one piece that this work waits for. Does nothing if the
// work waits for something that is not ready.
void step(CUstream_st& stream) {
  if (stream.stuck || stream.queue.empty()) return;
  const CUstream_st::Work& next = stream.queue.front();
  if (next.ready && !next.ready()) return;
  if (next.behind != nullptr && device().streams.contains(next.behind) &&
      next.behind->done < next.position) {
    return step(*next.behind);
  }
  run_until(stream, stream.done + 1);
}

// Each query lets some work run. Returns true if the stream has reached the position.
bool ask(CUstream_st& stream, uint64_t position) {
  if (stream.done < position) step(stream);
  return stream.done >= position;
}

void push(cudaStream_t stream, CUstream_st::Work work) {
  if (stream == nullptr) {
    run_all();
    if (work.run) work.run();
    return;
  }
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
    return;
  }
  stream->queue.push_back(std::move(work));
  ++stream->queued;
}

}  // namespace

cudaError_t begin_call(Context context) {
  run_eager();
  if (context == Context::kNeeded) device().contexts.insert(current_device());
  const uint64_t number = device().calls++;
  const bool fails =
      number >= device().first_failure && number - device().first_failure < device().failures;
  return fails ? note(cudaErrorLaunchFailure) : cudaSuccess;
}

void run_all() {
  for (cudaStream_t stream : device().streams) {
    if (stream->device == current_device()) run_until(*stream, stream->queued);
  }
}

void enqueue_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> work) {
  push(stream, {.run = std::move(work), .ready = std::move(ready)});
}

void nudge(cudaStream_t stream) { (void)ask(*stream, stream->queued); }

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const Lock hold(lock());
  push(stream, {.run = std::move(work)});
}

void make_eager(uint64_t streams) {
  const Lock hold(lock());
  device().eager = streams;
}

void make_stuck(uint64_t streams) {
  const Lock hold(lock());
  device().stuck = streams;
}

void unstick() {
  const Lock hold(lock());
  device().stuck = 0;
  for (cudaStream_t stream : device().streams) stream->stuck = false;
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

uint64_t slow_calls_made() {
  const Lock hold(lock());
  return device().slow_calls;
}

uint64_t copies_made() {
  const Lock hold(lock());
  return device().copies;
}

Holdings holdings() {
  const Lock hold(lock());
  return {device().allocated.size(), device().registered.size(), device().streams.size(),
          device().events.size()};
}

size_t streams_of_priority(int priority) {
  const Lock hold(lock());
  return static_cast<size_t>(
      std::count_if(device().streams.begin(), device().streams.end(),
                    [&](cudaStream_t stream) { return stream->priority == priority; }));
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
  if (config.stream != nullptr && config.stream->device != current_device()) {
    return note(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = check_can_take_work(config.stream)) return error;
  push(config.stream,
       {.run = [grid, block, thread = std::move(thread)] { run_grid(grid, block, thread); }});
  return cudaSuccess;
}

}  // namespace cuda_emulator

using cuda_emulator::begin_call;
using cuda_emulator::check_can_take_work;
using cuda_emulator::check_no_capture;
using cuda_emulator::check_not_captured;
using cuda_emulator::device;
using cuda_emulator::Lock;
using cuda_emulator::lock;
using cuda_emulator::note;

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *lowest = cuda_emulator::kLowestPriority;
  *highest = cuda_emulator::kHighestPriority;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, cuda_emulator::kLowestPriority);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  ++device().slow_calls;
  if (const cudaError_t error = begin_call()) return error;
  *stream = new CUstream_st;
  (*stream)->device = cuda_emulator::current_device();
  (*stream)->priority = priority;
  (*stream)->blocking = (flags & cudaStreamNonBlocking) == 0;
  (*stream)->eager = (device().eager & 1) != 0;
  (*stream)->stuck = (device().stuck & 1) != 0;
  device().eager >>= 1;
  device().stuck >>= 1;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  ++device().slow_calls;
  if (const cudaError_t error = check_not_captured(stream)) return error;
  const cudaError_t error = begin_call();
  cuda_emulator::run_until(*stream, stream->queued);
  device().streams.erase(stream);
  delete stream;
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  if (const cudaError_t error = check_not_captured(stream)) return error;
  if (const cudaError_t error = begin_call()) return error;
  if (stream == nullptr) return cudaDeviceSynchronize();
  cuda_emulator::run_until(*stream, stream->queued);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  if (const cudaError_t error = check_not_captured(stream)) return error;
  if (const cudaError_t error = begin_call()) return error;
  if (stream == nullptr) return cudaSuccess;
  return cuda_emulator::ask(*stream, stream->queued) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (const cudaError_t error = check_can_take_work(stream)) return error;
  const bool captures = stream != nullptr && stream->capture != nullptr;
  if (captures && event->captured) return cudaSuccess;  // of the same capture, and in order
  // A stream that waits for a captured event would join the capture: not emulated.
  if (event->captured) return note(cudaErrorStreamCaptureUnsupported);
  if (captures) {
    stream->capture->valid = false;
    return note(cudaErrorStreamCaptureIsolation);
  }
  cuda_emulator::push(stream, {.behind = event->stream, .position = event->position});
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *event = new CUevent_st;
  (*event)->device = cuda_emulator::current_device();
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
  const int of_stream = stream == nullptr ? cuda_emulator::current_device() : stream->device;
  if (event->device != of_stream) return note(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = check_can_take_work(stream)) return error;
  event->captured = stream != nullptr && stream->capture != nullptr;
  if (event->captured) return cudaSuccess;
  if (stream == nullptr) cuda_emulator::run_all();
  event->stream = stream;
  event->position = stream == nullptr ? 0 : stream->queued;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  if (const cudaError_t error = begin_call()) return error;
  if (event->stream != nullptr && device().streams.contains(event->stream)) {
    cuda_emulator::run_until(*event->stream, event->position);
  }
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  if (const cudaError_t error = begin_call()) return error;
  if (event->captured) return note(cudaErrorCapturedEvent);
  if (event->stream == nullptr || !device().streams.contains(event->stream)) return cudaSuccess;
  return cuda_emulator::ask(*event->stream, event->position) ? cudaSuccess : cudaErrorNotReady;
}
// The emulator measures no times.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}
