// Snapshots of device memory: what the daemon finds in the slabs, and who waits for whom. Runs on a
// GPU, or on the emulated one, whose streams are as late as they may be: a wait that is missing
// shows as wrong bytes.
#include <cuda_runtime.h>

#include "ckpt/ckpt_cuda.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"
#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

using kernels::DeviceArray;

class CudaStageTest : public SnapshotTest {
 protected:
  void SetUp() override {
    std::string reason;
    if (kernels::cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = kernels::make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    trainer_ = std::move(queue).value();
  }
  void TearDown() override {
    if (cuda_ != nullptr) ckpt_cuda_close(cuda_);
  }
  void open_with_cuda(const std::vector<uint64_t>& unit_bytes, ckpt_cuda_options options) {
    open(unit_bytes);
    char error[512] = "";
    options.struct_size = sizeof options;
    ASSERT_EQ(ckpt_cuda_open(session_->handle(), &options, &cuda_, error, sizeof error), CKPT_OK)
        << error;
  }
  // Every unit's bytes on the device, cut into tensors that lie apart, at odd addresses, too.
  std::vector<ckpt_cuda_piece> upload() {
    std::vector<ckpt_cuda_piece> pieces;
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      const std::vector<char>& bytes = data_[unit];
      const uint64_t cut = bytes.size() / 3;
      const uint64_t ends[] = {cut, bytes.size()};
      for (uint64_t at = 0; const uint64_t end : ends) {
        if (end == at) continue;
        auto array = DeviceArray<std::byte>::make(end - at + unit % 2);
        EXPECT_TRUE(array.ok());
        std::byte* to = array->data() + unit % 2;
        trainer_->upload(to, bytes.data() + at, end - at);
        pieces.push_back({unit, at, to, end - at});
        tensors_.push_back(std::move(array).value());
        at = end;
      }
    }
    return pieces;
  }
  ckpt_status stage(ckpt_snapshot* snapshot, const std::vector<ckpt_cuda_piece>& pieces) {
    return ckpt_cuda_stage(cuda_, snapshot, pieces.data(), pieces.size(), trainer_->stream());
  }
  // What an optimizer does: everything is overwritten.
  void overwrite() {
    for (const DeviceArray<std::byte>& tensor : tensors_) {
      cudaMemsetAsync(tensor.data(), 0x77, tensor.size(), trainer_->stream());
    }
  }

  std::unique_ptr<kernels::CudaQueue> trainer_;
  std::vector<DeviceArray<std::byte>> tensors_;
  ckpt_cuda* cuda_ = nullptr;
};

TEST_F(CudaStageTest, SavesWhatWasThereWhenItWasAskedTo) {
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

TEST_F(CudaStageTest, AUnitMayBeOverwrittenAsSoonAsItIsGathered) {
  start();
  open_with_cuda({200'000, 200'000, 200'000}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
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

TEST_F(CudaStageTest, PollHandsOverBitByBitAndEndsTheSnapshot) {
  start();
  open_with_cuda({600'000, 100}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  const auto early = snapshot.end();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().status, CKPT_E_FAILED_PRECONDITION);
  size_t polls = 0;
  for (size_t open = 1; open > 0; ++polls) ASSERT_EQ(ckpt_cuda_poll(cuda_, &open), CKPT_OK);
  EXPECT_GT(polls, 1u) << "a poll waits for nothing";
  expect_payload(seals(3));
  ASSERT_OK(snapshot.end());  // has been ended already: no error
}

TEST_F(CudaStageTest, DrainingEndsAtItsTimeout) {
  start();
  open_with_cuda({600'000}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  const ckpt_status at_once = ckpt_cuda_drain(cuda_, 0);
  // A device may have been faster; the emulated one never is.
  EXPECT_TRUE(at_once == CKPT_OK || at_once == CKPT_E_DEADLINE_EXCEEDED) << ckpt_cuda_error(cuda_);
  ASSERT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_payload(seals(3));
}

// One slab: what the second is leased is what the first still drains into.
TEST_F(CudaStageTest, ASlabThatIsStillDrainingIsWaitedFor) {
  start({.slab_bytes = kSlabBytes, .slab_count = 1});
  open_with_cuda({200'000}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
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

TEST_F(CudaStageTest, APieceThatWasForgottenIsSaid) {
  start();
  open_with_cuda({100'000, 1000}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
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

TEST_F(CudaStageTest, ClosingGivesBackWhatIsBeingStaged) {
  start({.slab_bytes = kSlabBytes, .slab_count = 1});
  open_with_cuda({1000}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
  const auto pieces = upload();
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
  ckpt_cuda_close(std::exchange(cuda_, nullptr));
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
  plan_.attempt = 1;
  plan_.timeout_ms = 1000;
  Snapshot again = begin();
  write(again, 0);
  ASSERT_OK(again.end());
  expect_payload(seals(1));
}

TEST_F(CudaStageTest, ASnapshotThatFailsMeanwhileTakesNothingWithIt) {
  start();
  open_with_cuda({100'000}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
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

TEST_F(CudaStageTest, WhatIsNotInThePlanIsRefusedAndNothingStaysLent) {
  start({.slab_bytes = kSlabBytes, .slab_count = 1});
  open_with_cuda({1000, 1000}, {.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10});
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

TEST_F(CudaStageTest, OptionsThatMakeNoSenseAreRefused) {
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
