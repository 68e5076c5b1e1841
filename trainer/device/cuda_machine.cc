// Queries about GPUs, for programs that do not compute on one.
#include "kernels/cuda/abandoned.h"
#include "kernels/cuda/queue.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {

int count_cuda_devices(std::string* reason) { return kernels::cuda_device_count(reason); }

void leave_device_memory() { kernels::stop_freeing(); }

Result<std::string> pci_bus_id(Device& device) {
  return kernels::cuda_bus_id(cuda_queue(device).device());
}

}  // namespace moetrain
