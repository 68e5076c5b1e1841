// CudaTest: a queue to test on. Without a device the test is skipped, and says why.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(queue).value();
  }
  template <typename T>
  std::vector<T> read(const DeviceArray<T>& array) {
    std::vector<T> content(array.size());
    const Status got = download(*queue_, content.data(), array.data(), array.size() * sizeof(T));
    EXPECT_TRUE(got.ok()) << got.error().message;
    return content;
  }

  std::unique_ptr<CudaQueue> queue_;
};

}  // namespace ckpt::kernels
