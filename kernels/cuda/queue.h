// Creates queues and device memory, and reports their failures. Includes no CUDA header, so that
// code above the kernels compiles without CUDA.
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

// Converts a cudaError_t to a Status: kResourceExhausted if memory is full, otherwise
// kUnavailable, with `what` and CUDA's sentence.
Status cuda_status(int error, std::string_view what);

// Scheduling priority of a queue's kernels. Copy engines of the device ignore priorities: copies
// run in the order in which they become ready, each to its end.
enum class CudaPriority : uint8_t { kNormal, kLow };

struct CudaQueueOptions {
  int device = 0;
  CudaPriority priority = CudaPriority::kNormal;
  uint32_t timeout_ms = 60'000;  // limit of each wait for the device
};
// Leaves the thread's current device as a CudaDeviceScope does. kUnavailable if there is no such
// device (names CUDA's reason); kResourceExhausted if its memory is full.
Result<std::unique_ptr<CudaQueue>> make_cuda_queue(const CudaQueueOptions& options);

// Makes a device current for the calling thread; the destructor restores the previous device. It
// keeps this device if restoring would open a context: hundreds of megabytes on a GPU that the
// thread never chose, since CUDA reports device 0 for a thread that has chosen none.
// Without such a device, nothing changes: a caller that did not check the device is refused by
// make_cuda_queue.
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
// Same, permanently: for threads that work for this device only.
void choose_cuda_device(int device);

// Waits until all queued work is done, at most the queue's timeout. kIo with the first failure
// since the last call.
Status synchronize(CudaQueue& queue);
// After a failure: waits until the queue has no running work, at most timeout_ms, and forgets
// failures. An error if work may still run: kDeadlineExceeded, or the device's error.
Status wait_until_idle(CudaQueue& queue, uint32_t timeout_ms);
// Same, but polls instead of blocking: `check` is called between two polls. An error of `check`
// ends the wait and is returned; the work stays queued.
Status synchronize(CudaQueue& queue, const std::function<Status()>& check);
// Waits for the queued work, then copies to host memory; the bytes are there on return. Errors: as
// synchronize(). If the first wait fails, nothing is ever written to `to`.
Status download(CudaQueue& queue, void* to, const void* from, size_t bytes);

// Queues a copy between two places of device memory, or zeros. The next synchronize() reports a
// failure.
void copy(CudaQueue& queue, void* to, const void* from, size_t bytes);
void zero(CudaQueue& queue, void* at, size_t bytes);

// Memory of the current device. kResourceExhausted with the size.
Result<void*> cuda_allocate(size_t bytes);
// CUDA first waits for all work of the device, without a bound: callers wait for their own work
// before. While an abandoned stream still runs (kernels/cuda/abandoned.h), nothing is freed.
void cuda_free(void* at);
// Pinned host memory. Copies between host and device need it so as not to block the calling
// thread. kResourceExhausted with the size.
Result<void*> cuda_allocate_pinned(size_t bytes);
void cuda_free_pinned(void* at);
// 0 without a driver or a device; `reason` then says why.
int cuda_device_count(std::string* reason = nullptr);
// PCI address of the device, as domain:bus:device.function.
Result<std::string> cuda_bus_id(int device);

}  // namespace ckpt::kernels
