// Tensors on a GPU: copies, memory and errors.
#include <gmock/gmock.h>

#include <numeric>

#include "kernels/cuda/abandoned.h"
#include "tests/trainer/device/cuda_fixture.h"
#include "tests/trainer/training/training.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

class CudaDeviceTest : public CudaTest {};

TEST_F(CudaDeviceTest, TensorsRoundTripThroughDevice) {
  const auto device = make_device();
  for (const size_t size : {size_t{1}, size_t{32'768}, size_t{32'769}, size_t{70'001}}) {
    std::vector<int64_t> values(size);
    std::iota(values.begin(), values.end(), 5);
    Tensor tensor(*device, Type::kInt64, values.size());
    tensor.write(std::span<const int64_t>(values));
    Tensor copy;
    copy.copy_from(tensor);
    tensor.zero();
    EXPECT_EQ(*copy.read<int64_t>(), values);
    EXPECT_EQ(*tensor.read<int64_t>(), std::vector<int64_t>(values.size(), 0));
  }
}

TEST_F(CudaDeviceTest, ReshapeReusesSufficientMemory) {
  const auto device = make_device();
  Tensor tensor(*device, Type::kFloat, 100);
  const std::byte* const first = tensor.data();
  tensor.reshape(*device, Type::kDouble, 50);
  EXPECT_EQ(tensor.data(), first);
  tensor.reshape(*device, Type::kDouble, 51);
  EXPECT_EQ(tensor.bytes(), 51 * sizeof(double));
  tensor.zero();
  EXPECT_EQ(*tensor.read<double>(), std::vector<double>(51, 0.0));
}

TEST_F(CudaDeviceTest, FailedAllocationSkipsQueuedWorkAndReportsOnce) {
  const auto device = make_device();
  Tensor small(*device, Type::kFloat, 4);
  const std::vector<float> values{1, 2, 3, 4};
  small.write(std::span<const float>(values));
  ASSERT_TRUE(device->synchronize().ok());
  Tensor large(*device, Type::kFloat, size_t{1} << 50);
  large.zero();
  small.zero();  // not done: behind the failure
  const Status status = device->synchronize();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(status.error().message, HasSubstr("cuda:0"));
  EXPECT_THAT(status.error().message, HasSubstr("4503599627370496 bytes"));
  EXPECT_EQ(*small.read<float>(), values);
}

TEST_F(CudaDeviceTest, MissingDeviceIsNamed) {
  const auto device = make_cuda_device({.index = 4711});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(device.error().message, HasSubstr("device cuda:4711"));
}

// An error when the model is made, not a failed assertion in its first step.
TEST_F(CudaDeviceTest, RefusesMoreExpertsThanGpuCanRoute) {
  const auto device = make_device();
  const auto comms = make_local_comms(1);
  const auto text = sample_text(1000);
  TrainConfig config;
  config.model = {.hidden = 4,
                  .layers = 1,
                  .heads = 1,
                  .kv_heads = 1,
                  .head_dim = 4,
                  .intermediate = 1,
                  .experts = 1025,
                  .top_k = 2,
                  .seq_len = 8};
  const auto many = RankTraining::make(*device, *comms[0], config, text);
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(many.error().message, HasSubstr("cuda:0"));
  EXPECT_THAT(many.error().message, HasSubstr("1025 experts"));
  config.model.experts = 64;
  config.model.top_k = 33;
  const auto wide = RankTraining::make(*device, *comms[0], config, text);
  ASSERT_FALSE(wide.ok());
  EXPECT_THAT(wide.error().message, HasSubstr("top_k 33"));
  config.model.top_k = 32;
  const auto most = RankTraining::make(*device, *comms[0], config, text);
  EXPECT_TRUE(most.ok()) << most.error().message;
}

// Work that does not end, like a collective whose peer is lost.
TEST_F(CudaDeviceTest, AWaitEndsAtItsTimeout) {
  {
    const auto device = make_cuda_device({.timeout_ms = 0});
    ASSERT_TRUE(device.ok()) << device.error().message;
    Tensor tensor(**device, Type::kFloat, size_t{1} << 20);
    // More than can be done in no time; the emulated device does a piece of it for each question.
    for (int i = 0; i < 2000; ++i) tensor.zero();
    const Status status = (*device)->synchronize();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(status.error().message, HasSubstr("not done after 0 ms"));
  }
  // The stream is still running. Until it ends, later tests could not free their memory.
  while (ckpt::kernels::any_abandoned()) {
  }
}

}  // namespace
}  // namespace moetrain
