// Snapshots of device memory: the bytes in the slabs, and the order of streams. Runs on a GPU, or
// on the emulated one, whose streams run as late as possible: a missing wait shows as wrong bytes.
#include "tests/client/cuda_client_fixture.h"

namespace ckpt::test {
namespace {

using CudaStageTest = CudaClientTest;

TEST_F(CudaStageTest, SavesStateAtStaging) {
  start();
  // Slabs of 256 KiB, chunks of 64: units over several of both, and many in one. Four slots, so
  // that each is used again and again.
  open_with_cuda({100, 70'000, 3, 600'000, 65'536, 1, 300'001, 64, 64, 4097},
                 {.gather_bytes = 256 << 10, .chunk_bytes = 64 << 10});
  uint64_t arena_bytes = 0;
  std::memset(ckpt_arena(session_->handle(), &arena_bytes), 0xee, arena_bytes);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, trainer_->stream()), CKPT_OK);
  overwrite();
  ASSERT_FALSE(trainer_->wait());
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  const auto begun = daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1);
  expect_payload(seals(begun[0].body.AsBeginSnapshot()->slabs_wanted));
}

TEST_F(CudaStageTest, UnitMayBeOverwrittenOnceGathered) {
  start();
  open_with_cuda({200'000, 200'000, 200'000}, kSmall);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  for (uint32_t unit = 0; unit < 3; ++unit) {
    ASSERT_EQ(ckpt_cuda_wait_gathered(cuda_, unit, trainer_->stream()), CKPT_OK);
    for (const ckpt_cuda_piece& piece : pieces) {
      if (piece.unit != unit) continue;
      cudaMemsetAsync(const_cast<void*>(piece.data), 0x77, piece.length, trainer_->stream());
    }
  }
  ASSERT_FALSE(trainer_->wait());
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK);
  expect_payload(seals(3));
}

TEST_F(CudaStageTest, PollSealsDrainedSlabsAndEndsSnapshot) {
  start();
  open_with_cuda({600'000, 100}, kSmall);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  const auto early = snapshot.end();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().status, CKPT_E_FAILED_PRECONDITION);
  for (size_t open = 1; open > 0;) ASSERT_EQ(ckpt_cuda_poll(cuda_, &open), CKPT_OK);
  expect_payload(seals(3));
  ASSERT_OK(snapshot.end());  // has been ended already: no error
}

TEST_F(CudaStageTest, DrainingEndsAtItsTimeout) {
  start();
  open_with_cuda({600'000}, kSmall);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  const ckpt_status at_once = ckpt_cuda_drain(cuda_, 0);
  // A device may have been faster; the emulated one never is.
  EXPECT_TRUE(at_once == CKPT_OK || at_once == CKPT_E_DEADLINE_EXCEEDED) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals(3));
}

// One slab: the second snapshot leases the slab into which the first still drains.
TEST_F(CudaStageTest, StagingWaitsForDrainingSlab) {
  start({.slab_bytes = kSlabBytes, .slab_count = 1});
  open_with_cuda({200'000}, kSmall);
  const auto pieces = upload();
  Snapshot first = begin();
  ASSERT_EQ(stage(first.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  plan_.attempt = 1;
  Snapshot second = begin();
  ASSERT_EQ(stage(second.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK);
  const auto both = seals(2);
  expect_payload({both.begin() + 1, both.end()});
}

TEST_F(CudaStageTest, MissingPieceIsReportedWithUnit) {
  start();
  open_with_cuda({100'000, 1000}, kSmall);
  auto pieces = upload();
  pieces.pop_back();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_E_FAILED_PRECONDITION);
  EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find("unit unit1"), std::string::npos)
      << ckpt_cuda_error(cuda_);
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
  EXPECT_EQ(ckpt_cuda_poll(cuda_, nullptr), CKPT_OK);
}

TEST_F(CudaStageTest, ClosingReleasesSlabsBeingStaged) {
  start({.slab_bytes = kSlabBytes, .slab_count = 1});
  open_with_cuda({1000}, kSmall);
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_OK);
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
  plan_.attempt = 1;
  plan_.timeout_ms = 1000;
  Snapshot again = begin();
  write(again, 0);
  ASSERT_OK(again.end());
  expect_payload(seals(1));
}

TEST_F(CudaStageTest, AbortedSnapshotLeavesNextSnapshotIntact) {
  start();
  open_with_cuda({100'000}, kSmall);
  const auto pieces = upload();
  Snapshot first = begin();
  ASSERT_EQ(stage(first.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_OK(first.abort("enough"));
  plan_.attempt = 1;
  Snapshot second = begin();
  ASSERT_EQ(stage(second.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK);
  EXPECT_EQ(first.info().level, CKPT_LEVEL_FAILED);
  expect_payload(seals(1));
}

TEST_F(CudaStageTest, UnplannedPieceIsRefusedAndReleasesSlabs) {
  start({.slab_bytes = kSlabBytes, .slab_count = 1});
  open_with_cuda({1000, 1000}, kSmall);
  auto pieces = upload();
  Snapshot snapshot = begin();
  pieces.back().offset += 1;
  EXPECT_EQ(stage(snapshot.handle(), pieces), CKPT_E_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find("unit unit1"), std::string::npos)
      << ckpt_cuda_error(cuda_);
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
  pieces.back().offset -= 1;
  plan_.attempt = 1;
  Snapshot again = begin();
  ASSERT_EQ(stage(again.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK);
  expect_payload(seals(1));
}

// A kernel that reads unreachable memory makes the device unusable for the process.
TEST_F(CudaStageTest, UnreachablePieceIsRefusedNamingUnit) {
  start();
  open_with_cuda({1000, 1000}, kSmall);
  const auto pieces = upload();
  const std::vector<char> on_host(1000);
  for (const char* bad : {static_cast<const char*>(nullptr), on_host.data()}) {
    auto wrong = pieces;
    wrong.back().data = bad;
    Snapshot snapshot = begin();
    EXPECT_EQ(stage(snapshot.handle(), wrong), CKPT_E_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find("unit 1: bytes [333, 1000)"),
              std::string::npos)
        << ckpt_cuda_error(cuda_);
    EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
    ++plan_.attempt;
  }
  Snapshot good = begin();
  ASSERT_EQ(stage(good.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals(1));
}

// The failure leaves no error behind for later CUDA calls.
TEST_F(CudaStageTest, MissingDeviceIsRefused) {
  start();
  open({1000});
  ckpt_cuda_options options = CKPT_INIT(ckpt_cuda_options);
  options.device = 4711;
  char error[512] = "";
  EXPECT_EQ(ckpt_cuda_open(session_->handle(), &options, &cuda_, error, sizeof error),
            CKPT_E_UNAVAILABLE);
  EXPECT_NE(std::string(error).find("no device 4711"), std::string::npos) << error;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaStageTest, InvalidOptionsAreRefused) {
  start();
  open({1000});
  const uint64_t bad[][2] = {{64 << 10, 64 << 10}, {1 << 20, 4096}, {1 << 20, 10'000}};
  for (const auto& [gather, chunk] : bad) {
    ckpt_cuda_options options = CKPT_INIT(ckpt_cuda_options);
    options.gather_bytes = gather;
    options.chunk_bytes = chunk;
    char error[512] = "";
    EXPECT_EQ(ckpt_cuda_open(session_->handle(), &options, &cuda_, error, sizeof error),
              CKPT_E_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error).find("gather buffer"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace ckpt::test
