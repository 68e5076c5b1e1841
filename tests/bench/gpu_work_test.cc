// What the benches of kernels count: bytes and operations of a case, worked out by hand.
#include <gtest/gtest.h>

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

TEST(Work, CountsEachArrayOnceAndTwiceWhereItIsAddedTo) {
  KernelCase kernel = two_inputs();
  const CudaVariant variant = bf16_inputs(2);
  EXPECT_EQ(forward_work(kernel, variant).bytes, 2 * 1010 + 2 * 100);
  EXPECT_EQ(backward_work(kernel, variant).bytes, 2 * 100 + 2 * 1010 + 2 * 4 * 1000 + 4 * 10);
  kernel.forward_adds = true;
  EXPECT_EQ(forward_work(kernel, variant).bytes, 2 * 1010 + 2 * 2 * 100);
}

TEST(Work, CountsWhatIsTouchedAndKeptAlone) {
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

}  // namespace
}  // namespace ckpt::kernels
