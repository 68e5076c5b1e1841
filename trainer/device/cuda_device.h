// A GPU as a Device, and its queue, for other code that works on the same GPU.
//
// A program without CUDA links without_cuda.cc instead, where making one is an error.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/queue.h"
#include "trainer/device/device.h"

namespace moetrain {

struct CudaDeviceOptions {
  int index = 0;
  Precision precision = Precision::kFp32;
  // Timeout of every wait for queued work. A GPU that hangs, or a queued collective whose peer
  // hangs, must not hang the rank.
  uint32_t timeout_ms = 60'000;
};

// Number of GPUs that this program can use; if 0, `reason` says why.
int count_cuda_devices(std::string* reason);

// The GPU becomes the calling thread's current device as long as the Device lives. kUnavailable if
// there is no such GPU, or no CUDA in this program; the message says which.
Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options);

// From now on no device memory is freed or unpinned; it is released with the process. Call this if
// work on a GPU does not end: freeing memory would wait for that work without a bound.
void leave_device_memory();

// The PCI bus id of the device's GPU. make_cuda_device() made `device`.
Result<std::string> pci_bus_id(Device& device);

// Sets a callback that is called repeatedly while the calling thread waits for this device. It must
// be short, must not block, and may use the device only by its own streams. Empty: no callback.
void set_while_waiting(Device& device, const std::function<void()>& call);

// Sets a callback that runs once, at the calling thread's next wait for this device, while queued
// work keeps the device busy. It may queue work on the device, and must not wait for it. Replaces
// an earlier callback; empty: none.
void call_at_next_wait(Device& device, const std::function<void()>& call);

// The queue of a device that make_cuda_device() made.
ckpt::kernels::CudaQueue& cuda_queue(Device& device);

}  // namespace moetrain
