// Whether there is a GPU that checks and benches can run on.
#pragma once

#include <stdexcept>
#include <string>

namespace ckpt::kernels {

// What a program of checks or benches ends with when nothing is wrong, but something was skipped;
// CTest knows it, too (cmake/CkptTargets.cmake).
inline constexpr int kSkippedExitCode = 77;

// No sentence: the first GPU can run what is built. Else why not: "no CUDA device (...)", or that
// it is older than compute capability 8.0, below which bf16 is unknown.
std::string why_no_test_device();
// What it is: "NVIDIA H200, compute capability 9.0".
std::string test_device_name();
// True after an error of a kernel's after which CUDA refuses everything to this process.
bool device_is_lost();

// Device memory cannot be had: it is full, or the device is lost by an error of some kernel's,
// after which CUDA refuses everything. Thrown by the helpers of cuda_variant.h, since nothing in
// checks goes on without it; findings_of() and gpu_bench make a sentence of it.
class NoDeviceMemory : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ckpt::kernels
