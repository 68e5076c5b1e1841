// For programs without CUDA.
#include "trainer/device/cuda_device.h"

namespace moetrain {

namespace {
constexpr const char* kReason = "this program was built without CUDA (-DCKPT_CUDA=ON)";
}

int count_cuda_devices(std::string* reason) {
  *reason = kReason;
  return 0;
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options) {
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable, "device cuda:{}: {}", options.index,
                          kReason);
}

Result<std::string> pci_bus_id(Device&) {
  CKPT_ASSERT_MSG(false, "nobody can have made a CUDA device");
}

void call_at_next_wait(Device&, const std::function<void()>&) {
  CKPT_ASSERT_MSG(false, "nobody can have made a CUDA device");
}

void set_while_waiting(Device&, const std::function<void()>&) {
  CKPT_ASSERT_MSG(false, "nobody can have made a CUDA device");
}

ckpt::kernels::CudaQueue& cuda_queue(Device&) {
  CKPT_ASSERT_MSG(false, "nobody can have made a CUDA device");
}

}  // namespace moetrain
