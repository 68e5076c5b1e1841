// Snapshots that queue only their first groups while they are staged (ahead_bytes in
// ckpt_cuda_options): which calls queue the other groups, and when. On the emulated device only.
#include <functional>
#include <optional>

#include "tests/client/cuda_client_fixture.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::test {
namespace {

class CudaAheadTest : public CudaClientTest {
 protected:
  static constexpr uint64_t kChunkBytes = 64 << 10;
  static constexpr uint64_t kChunks = 40;
  static constexpr uint64_t kSlots = 16;  // so groups of 1, 2, 4, 4, 4, 1 until all are taken
  static constexpr uint64_t kGroupsThatFit = 6;
  static constexpr ckpt_cuda_options kAhead{.gather_bytes = kSlots * kChunkBytes,
                                            .chunk_bytes = kChunkBytes,
                                            .ahead_bytes = 2 * kChunkBytes};
  // Index of the drain queue among the streams that ckpt_cuda_open() makes.
  static constexpr uint64_t kDrain = 2;

  void TearDown() override {
    cuda_emulator::unstick();
    cuda_emulator::fail_no_calls();
    CudaClientTest::TearDown();
  }
  // Registers one unit for each chunk.
  void connect() {
    start({.slab_bytes = kSlabBytes, .slab_count = 3 * kChunks});
    open_with_cuda(std::vector<uint64_t>(kChunks, kChunkBytes), kAhead);
    pieces_ = upload();
    ASSERT_FALSE(trainer_->wait());
  }
  void expect_staged(Snapshot& snapshot) {
    ASSERT_EQ(stage(snapshot.handle(), pieces_), CKPT_OK) << ckpt_cuda_error(cuda_);
  }
  void advance(uint64_t slices) {
    for (uint64_t i = 0; i < slices; ++i) ckpt_cuda_advance(cuda_);
  }
  void drain() { ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_); }
  // Compares the seals of the last attempt with the state.
  void expect_saved() {
    std::vector<fb::SealSlabT> found;
    for (size_t count = 1; daemon_ != nullptr; ++count) {
      found = seals(count);
      std::erase_if(found, [&](const auto& seal) { return seal.attempt != plan_.attempt; });
      uint64_t bytes = 0;
      for (const auto& seal : found) {
        for (const fb::SealedFragment& fragment : seal.fragments) bytes += fragment.length();
      }
      if (bytes >= data_.size() * kChunkBytes) break;
    }
    expect_payload(found);
  }
  size_t open_count() {
    size_t open = 99;
    (void)ckpt_cuda_poll(cuda_, &open);
    return open;
  }

  // The first snapshot makes events and takes memory, which would count as calls.
  Snapshot begin_second() {
    connect();
    Snapshot first = begin();
    expect_staged(first);
    drain();
    ++plan_.attempt;
    return begin();
  }

  std::vector<ckpt_cuda_piece> pieces_;
};

// Bounds the work that is queued in front of the first kernel of the next step.
TEST_F(CudaAheadTest, StagingQueuesBoundedWork) {
  Snapshot second = begin_second();
  cuda_emulator::fail_no_calls();  // resets the count of calls
  expect_staged(second);
  // The current device (1); an event of the trainer's stream: record, wait (2). Then groups of one
  // and of two chunks: tables, pack, its checksums, and an event: record, wait (5). Each chunk:
  // copy and event (2). Each piece: the addresses of its first and last byte (2).
  EXPECT_EQ(cuda_emulator::calls_made(), 3u + 2 * 5 + 3 * 2 + 2 * pieces_.size());
  drain();
  expect_saved();
}

TEST_F(CudaAheadTest, AdvanceQueuesOnlyIntoFreeSlots) {
  cuda_emulator::make_stuck(kDrain);
  connect();
  Snapshot snapshot = begin();
  const uint64_t before = cuda_emulator::copies_made();
  expect_staged(snapshot);
  EXPECT_EQ(cuda_emulator::copies_made() - before, 3u + 2) << "chunks, and the tables of groups";
  advance(1 + 4);
  EXPECT_EQ(cuda_emulator::copies_made() - before, 7u + 3) << "a group more";
  advance((1 + 4) + (1 + 4) + (1 + 1));
  EXPECT_EQ(cuda_emulator::copies_made() - before, kSlots + kGroupsThatFit);
  advance(3);
  EXPECT_EQ(open_count(), 1u);
  EXPECT_EQ(cuda_emulator::copies_made() - before, kSlots + kGroupsThatFit) << "none has a slot";
  cuda_emulator::unstick();
  drain();
  expect_saved();
}

// Bounds the time of one advance() call, during which the device may be idle.
TEST_F(CudaAheadTest, AdvanceQueuesOneGroupOrChunk) {
  Snapshot second = begin_second();
  expect_staged(second);
  cuda_emulator::fail_no_calls();  // resets the count of calls
  advance(1);
  // First the current device, and whether a chunk is drained (2).
  EXPECT_EQ(cuda_emulator::calls_made(), 2u + 4) << "tables, pack, its checksums, an event";
  cuda_emulator::fail_no_calls();
  advance(1);
  EXPECT_EQ(cuda_emulator::calls_made(), 2u + 3) << "the event awaited; copy, event";
  cuda_emulator::fail_no_calls();
  advance(1);
  EXPECT_EQ(cuda_emulator::calls_made(), 2u + 2) << "copy, event";
  drain();
  expect_saved();
}

// Each of the other calls finds a group whose kernels are queued and whose copies are not.
TEST_F(CudaAheadTest, OtherCallsFinishPartlyQueuedGroup) {
  connect();
  std::optional<Snapshot> other;  // outlives its staging
  const std::function<ckpt_status()> next[] = {
      [&] { return ckpt_cuda_poll(cuda_, nullptr); },
      [&] { return ckpt_cuda_drain(cuda_, 20'000); },
      [&] { return ckpt_cuda_wait_gathered(cuda_, 6, trainer_->stream()); },
      [&] {
        ++plan_.attempt;
        other.emplace(begin());
        return stage(other->handle(), pieces_);
      }};
  for (uint64_t slices = 1; const auto& call : next) {
    ++plan_.attempt;
    Snapshot snapshot = begin();
    expect_staged(snapshot);
    advance(slices++);
    EXPECT_EQ(call(), CKPT_OK) << ckpt_cuda_error(cuda_);
    drain();
    EXPECT_NE(snapshot.info().level, CKPT_LEVEL_FAILED);
  }
  expect_saved();
}

// wait_gathered() is the only call, and the device drains nothing.
TEST_F(CudaAheadTest, WaitGatheredQueuesUpToItsUnit) {
  cuda_emulator::make_stuck(kDrain);
  connect();
  Snapshot snapshot = begin();
  const uint64_t before = cuda_emulator::copies_made();
  expect_staged(snapshot);
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, 2, trainer_->stream()), CKPT_OK);
  EXPECT_EQ(cuda_emulator::copies_made() - before, 3u + 2);
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, 3, trainer_->stream()), CKPT_OK);
  EXPECT_EQ(cuda_emulator::copies_made() - before, 7u + 3);
  EXPECT_TRUE(trainer_->wait_at_most(5000));
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, trainer_->stream()), CKPT_OK);
  overwrite();
  EXPECT_FALSE(trainer_->wait_at_most(1)) << "what has no slot is not gathered";
  cuda_emulator::unstick();
  ASSERT_TRUE(trainer_->wait_at_most(5000));
  drain();
  expect_saved();
}

TEST_F(CudaAheadTest, NextSnapshotQueuesPreviousSnapshotFirst) {
  connect();
  Snapshot first = begin();
  expect_staged(first);
  ++plan_.attempt;
  Snapshot second = begin();
  expect_staged(second);
  EXPECT_EQ(open_count(), 2u);
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, trainer_->stream()), CKPT_OK);
  overwrite();
  drain();
  EXPECT_NE(first.info().level, CKPT_LEVEL_FAILED);
  expect_saved();
}

TEST_F(CudaAheadTest, InvalidLastPieceIsRefusedAtOnce) {
  connect();
  Snapshot before = begin();
  expect_staged(before);
  auto wrong = pieces_;
  wrong.back().data = nullptr;
  ++plan_.attempt;
  {
    Snapshot refused = begin();
    EXPECT_EQ(stage(refused.handle(), wrong), CKPT_E_INVALID_ARGUMENT);
    EXPECT_EQ(refused.info().level, CKPT_LEVEL_FAILED);
  }
  EXPECT_NE(before.info().level, CKPT_LEVEL_FAILED);
  ++plan_.attempt;
  Snapshot after = begin();
  expect_staged(after);
  drain();
  expect_saved();
}

TEST_F(CudaAheadTest, ClosingFailsSnapshotThatWasNotQueued) {
  connect();
  Snapshot snapshot = begin();
  expect_staged(snapshot);
  EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_OK);
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
}

TEST_F(CudaAheadTest, AbortedSnapshotLeavesNextSnapshotIntact) {
  connect();
  Snapshot first = begin();
  expect_staged(first);
  ASSERT_OK(first.abort("enough"));
  ckpt_cuda_advance(cuda_);
  ++plan_.attempt;
  Snapshot second = begin();
  expect_staged(second);
  drain();
  EXPECT_EQ(first.info().level, CKPT_LEVEL_FAILED);
  expect_saved();
}

// advance() uses no session: the next call that does reports the failure and fails the snapshot.
TEST_F(CudaAheadTest, NextCallReportsFailureOfAdvance) {
  connect();
  const std::function<ckpt_status()> next[] = {
      [&] { return ckpt_cuda_poll(cuda_, nullptr); },
      [&] { return ckpt_cuda_drain(cuda_, 20'000); },
      [&] { return ckpt_cuda_wait_gathered(cuda_, 0, trainer_->stream()); },
      [&] {
        ++plan_.attempt;
        Snapshot other = begin();
        const ckpt_status status = stage(other.handle(), pieces_);
        EXPECT_EQ(other.info().level, CKPT_LEVEL_FAILED);
        return status;
      }};
  for (const auto& call : next) {
    ++plan_.attempt;
    Snapshot snapshot = begin();
    expect_staged(snapshot);
    constexpr uint64_t kIntoAGroup = 5;
    cuda_emulator::fail_calls(kIntoAGroup, 1);
    advance(1);
    EXPECT_GT(cuda_emulator::calls_made(), kIntoAGroup);
    cuda_emulator::fail_no_calls();
    EXPECT_NE(snapshot.info().level, CKPT_LEVEL_FAILED);
    EXPECT_NE(call(), CKPT_OK);
    EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find("CUDA"), std::string::npos)
        << ckpt_cuda_error(cuda_);
    EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
    EXPECT_EQ(open_count(), 0u);
  }
  ++plan_.attempt;
  Snapshot after = begin();
  expect_staged(after);
  drain();
  expect_saved();
}

}  // namespace
}  // namespace ckpt::test
