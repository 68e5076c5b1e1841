// A context of gpu_bench for tests of its parts: on a GPU, or on the emulated one.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bench/service/gpu/benches.h"

namespace bench::gpu {

class GpuContextTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (ckpt::kernels::cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = ckpt::kernels::make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(queue).value();
  }

  ckpt::kernels::CudaQueue& queue() { return *queue_; }
  // The context of a new program: no device is warm yet.
  Context context() {
    return {.settings = settings_,
            .queue = *queue_,
            .found = [this](const Row& row) { rows_.push_back(row); },
            .progress = [](const std::string&) {}};
  }
  // Does nothing but count its calls.
  static Rate counted(int& calls) {
    return {.units_per_call = 1, .call = [&calls] {
              ++calls;
              return ckpt::Status();
            }};
  }

  Settings settings_{.tiny = true, .pairs = 2};
  std::vector<Row> rows_;

 private:
  std::unique_ptr<ckpt::kernels::CudaQueue> queue_;
};

}  // namespace bench::gpu
