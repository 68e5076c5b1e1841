// Loading pack's kernels ahead; only the emulated device counts calls and fails them when asked.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernels/pack.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::kernels {
namespace {

TEST(PreloadPackTest, LoadsEveryKernelAndLeavesNoError) {
  constexpr uint64_t kKernels = 4;
  cuda_emulator::fail_no_calls();
  (void)cudaGetLastError();  // of tests before
  preload_pack();
  EXPECT_EQ(cuda_emulator::calls_made(), kKernels);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);

  cuda_emulator::fail_calls(1, 2);
  preload_pack();
  EXPECT_EQ(cuda_emulator::calls_made(), kKernels) << "one that fails does not keep the others";
  cuda_emulator::fail_no_calls();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace ckpt::kernels
