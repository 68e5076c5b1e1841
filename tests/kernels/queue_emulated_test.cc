// Behaviour of a queue when CUDA calls fail; only the emulated device can fail a call on request.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "kernels/cuda/abandoned.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/batched_gemm.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::kernels {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class QueueFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto queue = make_cuda_queue({});
    ASSERT_TRUE(queue.ok());
    queue_ = std::move(*queue);
  }
  void TearDown() override { cuda_emulator::fail_no_calls(); }

  std::unique_ptr<CudaQueue> queue_;
};

TEST_F(QueueFaultsTest, ScratchFallsBackToRequestedSize) {
  const cuda_emulator::Holdings before = cuda_emulator::holdings();
  cuda_emulator::fail_calls(0, 1);
  auto* const at = static_cast<std::byte*>(queue_->scratch(3 * kMiB));
  ASSERT_NE(at, nullptr);
  zero(*queue_, at, 3 * kMiB);
  EXPECT_TRUE(synchronize(*queue_).ok());
  EXPECT_EQ(cuda_emulator::holdings(), before) << "what it grew out of was given back";
  EXPECT_EQ(queue_->scratch(3 * kMiB), at);
}

TEST_F(QueueFaultsTest, OversizedScratchFailsQueueOnce) {
  constexpr size_t kMoreThanAnyDevice = size_t{1} << 40;
  EXPECT_EQ(queue_->scratch(kMoreThanAnyDevice), nullptr);
  const Status status = synchronize(*queue_);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("allocating scratch"), std::string::npos);
  EXPECT_NE(queue_->scratch(3 * kMiB), nullptr);
  EXPECT_TRUE(synchronize(*queue_).ok());
}

// A stream abandoned by another library is not in the list of this one.
TEST_F(QueueFaultsTest, FreesNothingAfterGiveBackNothing) {
  // In its own process, because stop_freeing() cannot be undone.
  const auto keeps_memory = [] {
    void* const at = cuda_allocate(100).value();
    void* const pinned = cuda_allocate_pinned(100).value();
    const cuda_emulator::Holdings before = cuda_emulator::holdings();
    stop_freeing();
    cuda_free(at);
    cuda_free_pinned(pinned);
    return any_abandoned() && cuda_emulator::holdings() == before;
  };
  EXPECT_FALSE(any_abandoned());
  EXPECT_EXIT(std::_Exit(keeps_memory() ? 0 : 1), testing::ExitedWithCode(0), "");
}

// A 2 x 2 matrix in memory that both the emulated device and the test can access.
struct Square {
  DeviceArray<float> values;

  explicit Square(float value) {
    auto made = DeviceArray<float>::make(4);
    CKPT_ASSERT(made.ok());
    values = std::move(*made);
    set(value);
  }
  void set(float value) const { std::fill_n(values.data(), 4, value); }
  std::array<float, 4> get() const {
    const float* const at = values.data();
    return {at[0], at[1], at[2], at[3]};
  }
};

TEST_F(QueueFaultsTest, ProductsWithoutTheirPointersAreNotLaunched) {
  const Square a(1), b(2), first(0), second(0);
  const auto multiply_into = [&](const Square& c) {
    const Product shape{.rows = 2, .columns = 2, .inner = 2, .a = {2}, .b = {2}, .c_stride = 2};
    const PlacedProduct placed{shape, a.values.data(), b.values.data(), c.values.data()};
    multiply_groups(*queue_, "a product", CUDA_R_32F, {&placed, 1},
                    static_cast<void**>(queue_->scratch(3 * sizeof(void*))));
  };
  multiply_into(first);
  ASSERT_TRUE(synchronize(*queue_).ok());
  EXPECT_EQ(first.get(), (std::array<float, 4>{4, 4, 4, 4}));

  first.set(7);
  cuda_emulator::fail_calls(0, 1);
  multiply_into(second);
  cuda_emulator::fail_no_calls();
  EXPECT_FALSE(synchronize(*queue_).ok());
  EXPECT_EQ(first.get(), (std::array<float, 4>{7, 7, 7, 7}))
      << "by the pointers of the call before";
  EXPECT_EQ(second.get(), (std::array<float, 4>{0, 0, 0, 0}));
}

// A copy from host memory may wait for an earlier copy, and cannot be part of a captured graph.
TEST_F(QueueFaultsTest, GroupedProductsCopyNothing) {
  const Square a(1), b(2), c(0), d(0);
  const Product shape{.rows = 2, .columns = 2, .inner = 2, .a = {2}, .b = {2}, .c_stride = 2};
  const std::array<PlacedProduct, 2> products{
      PlacedProduct{shape, a.values.data(), b.values.data(), c.values.data()},
      PlacedProduct{shape, b.values.data(), b.values.data(), d.values.data()}};
  const uint64_t before = cuda_emulator::copies_made();
  multiply_groups(*queue_, "products", CUDA_R_32F, products,
                  static_cast<void**>(queue_->scratch(6 * sizeof(void*))), ProductCalls::kGrouped);
  ASSERT_TRUE(synchronize(*queue_).ok());
  EXPECT_EQ(cuda_emulator::copies_made(), before);
  EXPECT_EQ(c.get(), (std::array<float, 4>{4, 4, 4, 4}));
  EXPECT_EQ(d.get(), (std::array<float, 4>{8, 8, 8, 8}));
}

}  // namespace
}  // namespace ckpt::kernels
