// Finds out whether there is a GPU that checks and benches can run on.
#pragma once

#include <stdexcept>
#include <string>

namespace ckpt::kernels {

// Exit code of a program of checks or benches if no check failed but some were skipped. CTest uses
// the same code (cmake/CkptTargets.cmake).
inline constexpr int kSkippedExitCode = 77;

// Empty: the first GPU can run the checks. Otherwise the reason: "no CUDA device (...)", or a
// compute capability below 8.0, which does not support bf16.
std::string why_no_test_device();
// Name of the device: "NVIDIA H200, compute capability 9.0".
std::string test_device_name();
// True after a kernel's error after which CUDA refuses every call of this process.
bool device_is_lost();

// Device memory cannot be allocated: it is full, or the device is lost (device_is_lost()). Thrown
// by the helpers of cuda_variant.h, because a check cannot continue without memory. findings_of()
// and gpu_bench turn the exception into a message.
class NoDeviceMemory : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ckpt::kernels
