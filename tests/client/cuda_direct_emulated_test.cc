// Direct copies on the emulated device, whose streams are late, eager or stuck: which calls wait,
// and which memory may be staged.
#include "tests/client/cuda_direct_fixture.h"
#include "tests/client/cuda_stream_orders.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::test {
namespace {

class DirectEmulatedTest : public CudaDirectTest {
 protected:
  // The numbers of both queues among the streams that ckpt_cuda_open makes.
  static constexpr uint64_t kGather = 1;
  static constexpr uint64_t kDrain = 2;
  // Each unit is one chunk and one tensor. The first half lies before the part always gathered.
  const std::vector<uint64_t> chunks_ = std::vector<uint64_t>(2 * kDirectSlots, kDirectChunkBytes);

  void TearDown() override {
    cuda_emulator::unstick();
    cuda_emulator::fail_no_calls();
    CudaDirectTest::TearDown();
  }
  void expect_waits(uint32_t unit, bool waits) {
    ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, unit, trainer_->stream()), CKPT_OK);
    EXPECT_EQ(trainer_->wait_at_most(waits ? 1 : 5000), !waits) << "unit " << unit;
  }
  void drain_and_expect_payload() {
    cuda_emulator::unstick();
    EXPECT_TRUE(trainer_->wait_at_most(5000));
    ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
    expect_payload(seals_of(plan_.attempt));
  }
};

// The gathered half of the snapshot needs no drained slot: an optimizer waits for the direct half
// only.
TEST_F(DirectEmulatedTest, OnlyDirectUnitsWaitForTheirDrain) {
  cuda_emulator::make_stuck(kDrain);
  connect(chunks_, kDirect);
  const auto pieces = upload_whole();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  for (uint32_t unit = kDirectSlots; unit < chunks_.size(); ++unit) {
    expect_waits(unit, false);
    overwrite_unit(pieces, unit);
  }
  expect_waits(0, true);
  for (uint32_t unit = 0; unit < kDirectSlots; ++unit) {
    ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, unit, trainer_->stream()), CKPT_OK);
    overwrite_unit(pieces, unit);
  }
  drain_and_expect_payload();
}

TEST_F(DirectEmulatedTest, DirectUnitsWaitForTheirCrc) {
  cuda_emulator::make_stuck(kGather);
  connect(chunks_, kDirect);
  const auto pieces = upload_whole();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_waits(0, true);
  size_t open = 0;
  ASSERT_EQ(ckpt_cuda_poll(cuda_, &open), CKPT_OK);
  EXPECT_EQ(open, 1u);
  overwrite();
  // These bytes were overwritten without a wait, so the payload is not compared.
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, trainer_->stream()), CKPT_OK);
  cuda_emulator::unstick();
  EXPECT_TRUE(trainer_->wait_at_most(5000));
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
}

// The whole snapshot is gathered at once, so all units may be overwritten before any drain.
TEST_F(DirectEmulatedTest, SnapshotThatFitsBufferIsGathered) {
  cuda_emulator::make_stuck(kDrain);
  connect(std::vector<uint64_t>(kDirectSlots, kDirectChunkBytes), kDirect);
  const auto pieces = upload_whole();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_waits(CKPT_CUDA_ALL_UNITS, false);
  overwrite();
  drain_and_expect_payload();
}

// A direct chunk takes two calls, like a gathered chunk. A group launches two kernels and
// no pack.
TEST_F(DirectEmulatedTest, DirectChunksNeedNoSlotOrExtraCalls) {
  connect(chunks_, kDirect);
  const auto pieces = upload_whole();
  Snapshot first = begin();  // makes the events and takes the memory
  ASSERT_EQ(stage(first.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  ++plan_.attempt;
  Snapshot second = begin();
  cuda_emulator::fail_no_calls();  // counts from here on
  ASSERT_EQ(stage(second.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  // Current device; where the trainer is: said, awaited by both queues; two questions for a piece;
  // eight groups of a chunk: tables, two kernels, gathered: said, awaited; a copy, drained.
  EXPECT_EQ(cuda_emulator::calls_made(), 4u + 2 * chunks_.size() + chunks_.size() * (5 + 2));
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
}

// Tensors that lie side by side may be of two allocations, which CUDA copies one by one only.
TEST_F(DirectEmulatedTest, CopiesNeverCrossAllocations) {
  connect(chunks_, kDirect);
  auto pieces = upload_whole();
  const ckpt_cuda_piece whole = pieces[0];
  const uint64_t half = whole.length / 2;
  const auto* const second = static_cast<const std::byte*>(whole.data) + half;
  cuda_emulator::cut_allocation(second);
  pieces[0].length = half;
  pieces.insert(pieces.begin() + 1, {whole.unit, half, second, whole.length - half});
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  drain_and_expect_payload();
}

// The host's own memory is gathered: CUDA would copy it on the calling thread.
TEST_F(DirectEmulatedTest, PinnedMemoryOfTheHostIsGathered) {
  cuda_emulator::make_stuck(kDrain);
  connect(chunks_, kDirect);
  auto pieces = upload_whole();
  ASSERT_EQ(cudaHostRegister(data_[0].data(), data_[0].size(), cudaHostRegisterPortable),
            cudaSuccess);
  pieces[0].data = data_[0].data();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_waits(0, false);
  expect_waits(1, true);
  drain_and_expect_payload();
  EXPECT_EQ(cudaHostUnregister(data_[0].data()), cudaSuccess);
}

using DirectStreamsTest = WithStreamOrder<DirectEmulatedTest>;

TEST_P(DirectStreamsTest, WaitGatheredCoversCopyAndCrc) {
  ckpt_cuda_options options = kDirect;
  options.ahead_bytes = GetParam().ahead_bytes;
  connect(mixed_, options);
  uint64_t arena_bytes = 0;
  std::memset(ckpt_arena(session_->handle(), &arena_bytes), 0xee, arena_bytes);
  const auto pieces = upload_mixed();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  for (uint32_t unit = 0; unit < data_.size(); ++unit) {
    if (unit % 3 == 0) ckpt_cuda_advance(cuda_);
    ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, unit, trainer_->stream()), CKPT_OK);
    overwrite_unit(pieces, unit);
  }
  drain_and_expect_payload();
}

// The first bytes are direct: nothing but the copy itself waits for the trainer's stream.
TEST_P(DirectStreamsTest, DirectCopySeesStateAtStaging) {
  ckpt_cuda_options options = kDirect;
  options.ahead_bytes = GetParam().ahead_bytes;
  connect(chunks_, options);
  const auto pieces = upload_whole();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, trainer_->stream()), CKPT_OK);
  overwrite();
  drain_and_expect_payload();
}

INSTANTIATE_TEST_SUITE_P(Streams, DirectStreamsTest, testing::ValuesIn(all_stream_orders()));

class StageMemoryTest : public DirectEmulatedTest {
 protected:
  void expect_refused(const std::vector<ckpt_cuda_piece>& pieces, const std::string& why) {
    ++plan_.attempt;
    Snapshot snapshot = begin();
    EXPECT_EQ(stage(snapshot.handle(), pieces), CKPT_E_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find(why), std::string::npos)
        << ckpt_cuda_error(cuda_);
    EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
  }
};

// A kernel that reads freed memory makes the device unusable for the process.
TEST_F(StageMemoryTest, MemoryFreedSinceTheLastSnapshotIsRefused) {
  connect({1000, 2000}, kDirect);
  const auto pieces = upload_whole();
  Snapshot before = begin();
  ASSERT_EQ(stage(before.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  tensors_.pop_back();
  expect_refused(pieces, "unit 1: bytes [0, 2000): data is neither device memory nor pinned");
}

TEST_F(StageMemoryTest, APieceLongerThanItsMemoryIsRefused) {
  connect({1000, 2000}, kDirect);
  auto pieces = upload_whole();
  auto shorter = DeviceArray<std::byte>::make(1999);
  ASSERT_TRUE(shorter.ok());
  pieces[1].data = shorter->data();
  expect_refused(pieces, "unit 1: bytes [0, 2000): the last byte of data is neither");
}

TEST_F(StageMemoryTest, DefaultChunkSizeFollowsLinkSpeed) {
  start();
  const uint64_t before = cuda_emulator::copies_made();
  open_with_cuda({1000}, {.gather_bytes = 64 << 20});
  EXPECT_EQ(cuda_emulator::copies_made(), before + 2) << "measured, and warmed up";
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), upload()), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals(1));
}

}  // namespace
}  // namespace ckpt::test
