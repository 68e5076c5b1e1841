// Bytes and operations that the benches of kernels count, against values worked out by hand.
#include <gtest/gtest.h>

#include "bench/service/gpu/train_work.h"
#include "tests/kernels/kernel_case.h"

namespace ckpt::kernels {
namespace {

CudaVariant bf16_inputs(size_t inputs) {
  CudaVariant variant;
  variant.inputs = std::vector<Type>(inputs, Type::kBf16);
  variant.output = Type::kBf16;
  variant.gradients = std::vector<Type>(inputs, Type::kFloat);
  return variant;
}

KernelCase two_inputs() {
  KernelCase kernel;
  kernel.inputs = {1000, 10};
  kernel.adds = {true, false};
  kernel.outputs = 100;
  return kernel;
}

TEST(Work, CountsAccumulatedArraysTwice) {
  KernelCase kernel = two_inputs();
  const CudaVariant variant = bf16_inputs(2);
  EXPECT_EQ(forward_work(kernel, variant).bytes, 2 * 1010 + 2 * 100);
  EXPECT_EQ(backward_work(kernel, variant).bytes, 2 * 100 + 2 * 1010 + 2 * 4 * 1000 + 4 * 10);
  kernel.forward_adds = true;
  EXPECT_EQ(forward_work(kernel, variant).bytes, 2 * 1010 + 2 * 2 * 100);
}

TEST(Work, CountsTouchedAndKeptBytesOnly) {
  KernelCase kernel = two_inputs();
  kernel.touched = {50, 10};
  kernel.kept_bytes = 7;
  kernel.backward_reads_inputs = false;
  kernel.forward_flops = 12;
  const CudaVariant variant = bf16_inputs(2);
  const Work forward = forward_work(kernel, variant);
  const Work backward = backward_work(kernel, variant);
  EXPECT_EQ(forward.bytes, 2 * 60 + 2 * 100 + 7);
  EXPECT_EQ(forward.flops, 12);
  EXPECT_EQ(backward.bytes, 2 * 100 + 2 * 4 * 50 + 4 * 10 + 7);
  EXPECT_EQ(backward.flops, 24);
}

// One layer, worked out by hand: q and o 8 x 4, k and v 8 x 2, two of three experts of 3 x 8 x 5,
// the router 8 x 3, the head 8 x 7; scores and values over (1 + 2 + 3) / 3 tokens, 4 wide.
TEST(Work, StepCountsForwardProductsThreeTimes) {
  moetrain::ModelConfig config{.vocab = 7,
                               .hidden = 8,
                               .layers = 1,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 2,
                               .intermediate = 5,
                               .experts = 3,
                               .top_k = 2,
                               .seq_len = 3};
  constexpr double kLayer = 2 * 32 + 2 * 16 + 2 * 120 + 24 + 2 * 2 * 4;
  constexpr double kHead = 56;
  EXPECT_EQ(bench::gpu::step_flops(config, 1), 3 * 2 * (kLayer + kHead));
  config.layers = 2;
  EXPECT_EQ(bench::gpu::step_flops(config, 10), 10 * 3 * 2 * (2 * kLayer + kHead));
}

}  // namespace
}  // namespace ckpt::kernels
