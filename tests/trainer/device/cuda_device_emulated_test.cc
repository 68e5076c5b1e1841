// Counts of copies, which only the emulated device provides. A read that uses a copy engine waits
// behind a snapshot's chunks; the chunks are queued only while the step waits.
#include "bench/service/gpu/state_sink.h"
#include "kernels/cuda/land.h"
#include "tests/support/cuda_emulator/control.h"
#include "tests/trainer/device/cuda_fixture.h"
#include "tests/trainer/training/training.h"

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

TEST_F(CudaCopiesTest, SmallReadsUseNoCopyEngine) {
  const auto device = make_device();
  EXPECT_EQ(copies_of_a_read(*device, 1), 0);
  EXPECT_EQ(copies_of_a_read(*device, kernels::kLandBytesMax), 0);
  EXPECT_EQ(copies_of_a_read(*device, kernels::kLandBytesMax + 1), 1);
}

TEST_F(CudaCopiesTest, LossReadUsesNoCopyEngine) {
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

// A step's boundary queues no part of a snapshot, and the first wait of a step only the first
// chunk.
TEST_F(CudaCopiesTest, SnapshotChunksAreQueuedWhileStepWaits) {
  const auto device = make_device();
  const auto comms = make_local_comms(1);
  const TrainConfig config = small_config();
  const std::vector<uint8_t> text = sample_text(10'000);
  const auto training = RankTraining::make(*device, *comms.front(), config, text);
  ASSERT_TRUE(training.ok()) << training.error().message;
  const auto sink = bench::gpu::StateSink::open(
      (*training)->model(),
      {.slab_bytes = 64 << 10, .gather_bytes = 64 << 10, .chunk_bytes = 8 << 10, .ahead_bytes = 1});
  ASSERT_TRUE(sink.ok()) << sink.error().message;
  ASSERT_TRUE(device->synchronize().ok());
  const uint64_t before = cuda_emulator::copies_made();
  ASSERT_TRUE((*sink)->stage().ok());
  EXPECT_EQ(cuda_emulator::copies_made(), before) << "the device may be idle";
  set_while_waiting(*device, {});
  ASSERT_TRUE(device->synchronize().ok());
  EXPECT_EQ(cuda_emulator::copies_made(), before + 2) << "a chunk, and the tables it is packed by";
  set_while_waiting(*device, [&] { (*sink)->advance(); });
  Tensor tensor(*device, Type::kByte, 1);
  const auto wait_for_something = [&] {
    for (int i = 0; i < 100; ++i) tensor.zero();
    return device->synchronize().ok();
  };
  ASSERT_TRUE(wait_for_something());
  const uint64_t queued = cuda_emulator::copies_made();
  EXPECT_GT(queued, before + 2);
  set_while_waiting(*device, {});
  ASSERT_TRUE(wait_for_something());
  EXPECT_EQ(cuda_emulator::copies_made(), queued);
  EXPECT_TRUE((*sink)->drain().ok());
}

}  // namespace
}  // namespace moetrain
