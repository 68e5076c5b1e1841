#include "tests/kernels/test_device.h"

#include <cuda_runtime.h>

#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

std::string why_no_test_device() {
  std::string reason;
  if (cuda_device_count(&reason) == 0) return "no CUDA device (" + reason + ")";
  cudaDeviceProp device{};
  const Status asked = cuda_status(cudaGetDeviceProperties(&device, 0), "properties of device 0");
  if (!asked.ok()) return "no CUDA device (" + asked.error().message + ")";
  constexpr int kMajorMin = 8;  // as in cmake/CkptCuda.cmake
  if (device.major >= kMajorMin) return {};
  return fmt::format("{} has compute capability {}.{}; {}.0 or later is needed", device.name,
                     device.major, device.minor, kMajorMin);
}

std::string test_device_name() {
  cudaDeviceProp device{};
  const Status asked = cuda_status(cudaGetDeviceProperties(&device, 0), "properties of device 0");
  if (!asked.ok()) return asked.error().message;
  return fmt::format("{}, compute capability {}.{}", device.name, device.major, device.minor);
}

bool device_is_lost() { return !DeviceArray<std::byte>::make(1).ok(); }

}  // namespace ckpt::kernels
