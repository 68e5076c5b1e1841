// What the emulated device must not forgive.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cuda_emulator {
namespace {

void shuffle_after_some_have_left(int lanes_that_leave, float* out) {
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane < lanes_that_leave) return;
  out[lane] = __shfl_xor_sync(~0u, static_cast<float>(lane), 1);
}
void ballot_after_some_have_left(int lanes_that_leave, float* out) {
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane < lanes_that_leave) return;
  out[lane] = static_cast<float>(__ballot_sync(~0u, lane & 1));
}

void launch_a_warp(void (*kernel)(int, float*), int lanes_that_leave, float* out) {
  const cudaLaunchConfig_t one_warp{.gridDim = {1},
                                    .blockDim = {32},
                                    .dynamicSmemBytes = 0,
                                    .stream = nullptr,
                                    .attrs = nullptr,
                                    .numAttrs = 0};
  EXPECT_EQ(cudaLaunchKernelEx(&one_warp, kernel, lanes_that_leave, out), cudaSuccess);
}

TEST(CudaEmulatorDeathTest, ALaneThatHasEndedGivesNoValue) {
  float out[32] = {};
  launch_a_warp(shuffle_after_some_have_left, 0, out);
  EXPECT_EQ(out[4], 5.0f);
  launch_a_warp(ballot_after_some_have_left, 0, out);
  EXPECT_EQ(out[4], static_cast<float>(0xaaaaaaaau));
  for (auto* kernel : {shuffle_after_some_have_left, ballot_after_some_have_left}) {
    EXPECT_DEATH(launch_a_warp(kernel, 1, out), "with a lane that has ended");
  }
}

}  // namespace
}  // namespace cuda_emulator
