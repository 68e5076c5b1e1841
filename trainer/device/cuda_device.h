// The GPU as a Device, and what it shares with others that work on it: its queue.
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
  // For all that was queued to be done, whenever somebody waits for it. A GPU that hangs, or a
  // collective in the queue whose peer does, shall not take the rank with it.
  uint32_t timeout_ms = 60'000;
};

// How many GPUs this program can use; `reason` then says why there are none.
int count_cuda_devices(std::string* reason);

// The GPU becomes the calling thread's current device as long as the Device lives. kUnavailable if
// there is no such GPU, or no CUDA in this program; the message says which.
Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options);

// For who has left work on a GPU that does not come to its end: from here on no device's memory is
// freed, nor unpinned, which would wait for that work without a bound. It goes with the process.
void leave_device_memory();

// Where the GPU of a device that make_cuda_device() made is on the machine's PCI bus.
Result<std::string> pci_bus_id(Device& device);

// Called again and again while the calling thread waits for this device, from the tenth microsecond
// of a wait on, and not for long at a time: it must not wait for anything, nor use the device but
// by streams of its own. Empty: nothing.
void set_while_waiting(Device& device, const std::function<void()>& call);

// Called once, when the calling thread next begins to wait for this device: what is queued by then
// keeps the device busy meanwhile. It may queue work on the device, and must not wait for it. A
// later call of this replaces it; empty: nothing.
void call_at_next_wait(Device& device, const std::function<void()>& call);

// The queue of a device that make_cuda_device() made.
ckpt::kernels::CudaQueue& cuda_queue(Device& device);

}  // namespace moetrain
