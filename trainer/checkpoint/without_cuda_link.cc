// For programs without CUDA.
#include "trainer/checkpoint/device_link.h"

namespace moetrain {

Result<std::unique_ptr<DeviceLink>> make_cuda_link(ckpt::client::Session&, Device& device,
                                                   uint32_t) {
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable, "device {}: {}", device.name(),
                          "this program was built without CUDA (-DCKPT_CUDA=ON)");
}

}  // namespace moetrain
