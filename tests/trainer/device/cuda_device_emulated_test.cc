// What only the emulated device can tell: which of a step's reads go through a copy engine, where
// they would wait for a snapshot's chunks.
#include "kernels/cuda/land.h"
#include "tests/support/cuda_emulator/control.h"
#include "tests/trainer/device/cuda_fixture.h"

namespace moetrain {
namespace {

class CudaCopiesTest : public CudaTest {};

uint64_t copies_of_a_read(Device& device, size_t bytes) {
  Tensor tensor(device, Type::kByte, bytes);
  tensor.zero();
  std::vector<std::byte> read(bytes);
  const uint64_t before = cuda_emulator::copies_made();
  EXPECT_TRUE(tensor.read_bytes(read).ok());
  return cuda_emulator::copies_made() - before;
}

TEST_F(CudaCopiesTest, SmallReadsDoNotWaitForAnEngine) {
  const auto device = make_device();
  EXPECT_EQ(copies_of_a_read(*device, 1), 0);
  EXPECT_EQ(copies_of_a_read(*device, kernels::kLandBytesMax), 0);
  EXPECT_EQ(copies_of_a_read(*device, kernels::kLandBytesMax + 1), 1);
}

TEST_F(CudaCopiesTest, NorDoesTheLoss) {
  const auto device = make_device();
  const kernels::CrossEntropyShape shape{.rows = 1, .vocab = 2};
  Tensor logits(*device, Type::kFloat, 2), targets(*device, Type::kInt32, 1);
  Tensor log_sum_exp(*device, Type::kFloat, 1);
  logits.zero();
  targets.zero();
  device->cross_entropy_forward(shape, logits, targets, log_sum_exp);
  const uint64_t before = cuda_emulator::copies_made();
  EXPECT_EQ(device->read_loss()->targets, 1);
  EXPECT_EQ(cuda_emulator::copies_made(), before);
}

}  // namespace
}  // namespace moetrain
