// Groups of chunks, gathered by one pack each: the number of run time calls, which work waits for
// which, and the state after one of the calls fails. On the emulated device only.
#include "tests/client/cuda_client_fixture.h"
#include "tests/client/cuda_stream_orders.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::test {
namespace {

constexpr uint64_t kChunkBytes = 64 << 10;
constexpr uint64_t kSlots = 16;  // so groups of 1, 2, 4, 4, ... chunks
constexpr ckpt_cuda_options kManySlots{.gather_bytes = kSlots * kChunkBytes,
                                       .chunk_bytes = kChunkBytes};
// Index of the drain queue among the streams that ckpt_cuda_open() makes.
constexpr uint64_t kDrain = 2;

class CudaGroupsTest : public CudaClientTest {
 protected:
  void TearDown() override {
    cuda_emulator::unstick();
    cuda_emulator::fail_no_calls();
    CudaClientTest::TearDown();
  }
  void start_with_slabs(uint32_t count) { start({.slab_bytes = kSlabBytes, .slab_count = count}); }
  bool says(const std::string& text) {
    return std::string(ckpt_cuda_error(cuda_)).find(text) != std::string::npos;
  }
  size_t open_count() {
    size_t open = 99;
    EXPECT_EQ(ckpt_cuda_poll(cuda_, &open), CKPT_OK) << ckpt_cuda_error(cuda_);
    return open;
  }
};

TEST_F(CudaGroupsTest, SnapshotMakesFixedCallsPerChunkAndGroup) {
  constexpr uint64_t kChunks = 40;
  start_with_slabs(2 * kChunks * kChunkBytes / kSlabBytes);
  open_with_cuda({kChunks * kChunkBytes}, kManySlots);
  const auto pieces = upload();
  Snapshot first = begin();  // makes the events and takes the memory
  ASSERT_EQ(stage(first.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  ++plan_.attempt;
  Snapshot second = begin();
  cuda_emulator::fail_no_calls();  // resets the count of calls
  ASSERT_EQ(stage(second.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  const uint64_t calls = cuda_emulator::calls_made();

  // After the first 40 chunks the next chunk goes into slot 8: groups of 1, 2, 4 and 1 up to the
  // buffer's end, then eight groups of 4.
  constexpr uint64_t kGroups = 12;
  // Groups that reach beyond this snapshot's first 16 chunks; slots of the others are free.
  constexpr uint64_t kGroupsThatWaitForSlots = 6;
  constexpr uint64_t kCallsForAGroup =
      5;  // tables, pack, its checksums; the event "gathered": record, wait
  constexpr uint64_t kCallsForAChunk = 2;     // the copy, and its event
  constexpr uint64_t kCallsForASnapshot = 3;  // current device; the trainer's event: record, wait
  constexpr uint64_t kCallsForAPiece = 2;     // the addresses of its first and last byte
  EXPECT_EQ(calls, kCallsForASnapshot + pieces.size() * kCallsForAPiece +
                       kGroups * kCallsForAGroup + kGroupsThatWaitForSlots +
                       kChunks * kCallsForAChunk);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
}

// Sixteen chunks of one unit each fill the slots, and the drain is stuck. Units in slots are
// gathered, and their waits do not depend on units without a slot.
TEST_F(CudaGroupsTest, UnitWaitsForItsOwnGroupOnly) {
  cuda_emulator::make_stuck(kDrain);
  start_with_slabs(8);
  open_with_cuda(std::vector<uint64_t>(kSlots + 4, kChunkBytes), kManySlots);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  for (uint32_t unit = 0; unit < kSlots; ++unit) {
    ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, unit, trainer_->stream()), CKPT_OK);
    EXPECT_TRUE(trainer_->wait_at_most(5000)) << "unit " << unit;
  }
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, kSlots, trainer_->stream()), CKPT_OK);
  EXPECT_FALSE(trainer_->wait_at_most(1));
  cuda_emulator::unstick();
  EXPECT_TRUE(trainer_->wait_at_most(5000));
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals(5));
}

// A piece is refused while others are in flight. The snapshot's handle may be freed at once, and a
// snapshot that was staged before is not affected.
TEST_F(CudaGroupsTest, RefusedSnapshotHasNoCopiesInFlight) {
  start_with_slabs(6);
  open_with_cuda({10 * kChunkBytes, 100}, kManySlots);
  const auto pieces = upload();
  Snapshot before = begin();
  ASSERT_EQ(stage(before.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  auto wrong = pieces;
  wrong.back().data = nullptr;
  ++plan_.attempt;
  {
    Snapshot refused = begin();
    EXPECT_EQ(stage(refused.handle(), wrong), CKPT_E_INVALID_ARGUMENT);
    EXPECT_TRUE(says("unit 1: bytes [33, 100): data is NULL")) << ckpt_cuda_error(cuda_);
    EXPECT_EQ(refused.info().level, CKPT_LEVEL_FAILED);
  }
  EXPECT_EQ(open_count(), 0u) << "the drain queue is in order";
  expect_payload(seals(3));
  // All slabs but those of the first snapshot are free again.
  ++plan_.attempt;
  Snapshot after = begin();
  ASSERT_EQ(stage(after.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
}

// Memory in use by the device is kept, and the wait for the device ends at the timeout.
TEST_F(CudaGroupsTest, RefusalEndsAtTimeoutOnHungDevice) {
  start_with_slabs(6);
  ckpt_cuda_options options = kManySlots;
  options.timeout_ms = 20;
  cuda_emulator::make_stuck(kDrain);
  open_with_cuda({10 * kChunkBytes, 100}, options);
  auto pieces = upload();
  pieces.back().data = nullptr;
  {
    Snapshot refused = begin();
    EXPECT_EQ(stage(refused.handle(), pieces), CKPT_E_INVALID_ARGUMENT);
  }
  EXPECT_EQ(open_count(), 0u);
  EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_E_DEADLINE_EXCEEDED);
  cuda_emulator::unstick();
  for (int i = 0; i < 1000 && trainer_ != nullptr; ++i) {
    ASSERT_TRUE(DeviceArray<std::byte>::make(1).ok());  // lets the device finish some work
  }
}

// Slots are reused many times, by groups of several chunks, some with gaps and some without.
using LateGroupsTest = WithStreamOrder<CudaGroupsTest>;

TEST_P(LateGroupsTest, UnitMayBeOverwrittenAfterGroupIsGathered) {
  start_with_slabs(8);
  // Chunks of two blocks: some eighty chunks go through sixteen slots. At the end every chunk has
  // gaps.
  std::vector<uint64_t> units{100, 70'000, 3, 300'000, 65'536, 1, 64, 64, 4097, 3000, 90'001};
  units.insert(units.end(), 60, 1000);
  open_with_cuda(
      units,
      {.gather_bytes = kSlots * 8192, .chunk_bytes = 8192, .ahead_bytes = GetParam().ahead_bytes});
  uint64_t arena_bytes = 0;
  std::memset(ckpt_arena(session_->handle(), &arena_bytes), 0xee, arena_bytes);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  for (uint32_t unit = 0; unit < data_.size(); ++unit) {
    if (unit % 5 == 0) ckpt_cuda_advance(cuda_);
    ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, unit, trainer_->stream()), CKPT_OK);
    for (const ckpt_cuda_piece& piece : pieces) {
      if (piece.unit != unit) continue;
      cudaMemsetAsync(const_cast<void*>(piece.data), 0x77, piece.length, trainer_->stream());
    }
  }
  ASSERT_FALSE(trainer_->wait());
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals(3));
}

INSTANTIATE_TEST_SUITE_P(Streams, LateGroupsTest, testing::ValuesIn(all_stream_orders()));

}  // namespace
}  // namespace ckpt::test
