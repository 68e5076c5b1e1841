// Runs a Check as a test of GoogleTest. Those for CUDA run on a GPU, or on the emulated one; built
// for CUDA and without a device they are skipped.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "tests/kernels/checker.h"

namespace ckpt::kernels {

inline void PrintTo(const Check& check, std::ostream* out) { *out << check.name; }

class CheckTest : public testing::TestWithParam<Check> {
 protected:
  void SetUp() override {
    if (GetParam().backend == Backend::kCpu) return;
    std::string reason;
    if (cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = make_cuda_queue({.timeout_ms = 600'000});  // an emulated device takes its time
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(queue).value();
  }
  void expect_nothing_wrong() {
    constexpr uint64_t kSeed = 20241121;  // gpu_check takes a fresh one
    EXPECT_THAT(findings_of(GetParam(), queue_.get(), kSeed), testing::IsEmpty())
        << "seed " << kSeed;
  }

 private:
  std::unique_ptr<CudaQueue> queue_;
};

inline std::string check_name(const testing::TestParamInfo<Check>& info) { return info.param.name; }

}  // namespace ckpt::kernels
