// Fixture of tests on a GPU, or on the emulated one: skips the tests if there is no device.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "trainer/device/cuda_device.h"

namespace moetrain {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (count_cuda_devices(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
  }
  static std::unique_ptr<Device> make_device(Precision precision = Precision::kFp32) {
    auto device = make_cuda_device({.precision = precision});
    CKPT_ASSERT_MSG(device.ok(), device.error().message);
    return std::move(*device);
  }
};

}  // namespace moetrain
