// Making queues and device memory, and what can go wrong with them. Includes no CUDA header, so
// that code above the kernels compiles without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "formats/base/result.h"
#include "kernels/queue.h"

namespace ckpt::kernels {

// What a call of CUDA's run time has returned (a cudaError_t), as a Status: kResourceExhausted
// where memory is full, kUnavailable for all else, with `what` and CUDA's sentence.
Status cuda_status(int error, std::string_view what);

// What runs first where both could. The device's copy engines know no priorities: there, copies
// take turns in the order in which they are ready, each to its end.
enum class CudaPriority : uint8_t { kNormal, kLow };

struct CudaQueueOptions {
  int device = 0;
  CudaPriority priority = CudaPriority::kNormal;
  uint32_t timeout_ms = 60'000;  // of each of its waits for the device
};
// The thread's current device stays as after a CudaDeviceScope. kUnavailable if there is no such
// device (names CUDA's reason); kResourceExhausted if its memory is full.
Result<std::unique_ptr<CudaQueue>> make_cuda_queue(const CudaQueueOptions& options);

// Makes a device current for the calling thread as long as it lives; then the one before is again,
// unless that would open a context on it: hundreds of megabytes on a GPU that the thread never
// chose, since one that has chosen none is said to have device 0. Then it keeps this one.
// Where there is no such device nothing changes: whoever asks for one it did not check is refused
// by make_cuda_queue.
class CudaDeviceScope {
 public:
  explicit CudaDeviceScope(int device);
  ~CudaDeviceScope();
  CudaDeviceScope(const CudaDeviceScope&) = delete;
  CudaDeviceScope& operator=(const CudaDeviceScope&) = delete;

 private:
  int before_ = 0;
  const int device_;
};
// The same for good: for threads that do nothing but this device's work.
void choose_cuda_device(int device);

// Waits until all that was queued is done, at most the queue's timeout. kIo with the first failure
// since the last call.
Status synchronize(CudaQueue& queue);
// After a failure: waits until nothing of the queue runs any more, timeout_ms at most, and forgets
// what has failed. An error if it may still run: kDeadlineExceeded, or what the device says.
Status come_to_rest(CudaQueue& queue, uint32_t timeout_ms);
// The same, but asks again and again instead of waiting: `go_on` is called between two questions
// and ends the wait by the error it returns. The work stays queued then.
Status synchronize(CudaQueue& queue, const std::function<Status()>& go_on);
// Waits for what was queued, then copies to host memory; there when the call returns. Errors: those
// of synchronize(). Where the first wait ends too soon, nothing is ever written to `to`.
Status download(CudaQueue& queue, void* to, const void* from, size_t bytes);

// Puts a copy between any two places of device memory, or zeros, into the queue. A failure is said
// by the next synchronize().
void copy(CudaQueue& queue, void* to, const void* from, size_t bytes);
void zero(CudaQueue& queue, void* at, size_t bytes);

// Memory of the current device. kResourceExhausted with the size.
Result<void*> cuda_allocate(size_t bytes);
// CUDA waits for all work of the device first, without a bound: whoever frees has waited for its
// own. While a stream that was given up still runs (kernels/cuda/abandoned.h), nothing is freed.
void cuda_free(void* at);
// Pinned memory of the host, which copies from and to a device need if they shall not stop the
// calling thread. kResourceExhausted with the size.
Result<void*> cuda_allocate_pinned(size_t bytes);
void cuda_free_pinned(void* at);
// 0 where there is no driver or no device; `reason` then says why.
int cuda_device_count(std::string* reason = nullptr);
// Where the device is on the machine's PCI bus, as domain:bus:device.function.
Result<std::string> cuda_bus_id(int device);

}  // namespace ckpt::kernels
