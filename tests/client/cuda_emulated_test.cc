// Tests that need the emulated device: streams that are late or eager in every combination, and
// calls of the run time that fail one after another.
#include "tests/client/cuda_round_trip.h"
#include "tests/support/cuda_emulator/control.h"
#include "tests/support/failing_allocations.h"

namespace ckpt::test {
namespace {

// Five streams: the trainer's, gather, drain, copy, unpack.
class LateAndEagerTest : public RoundTripTest, public testing::WithParamInterface<unsigned> {
 protected:
  void SetUp() override {
    cuda_emulator::make_eager(GetParam());
    RoundTripTest::SetUp();
  }
  void TearDown() override {
    RoundTripTest::TearDown();
    cuda_emulator::make_eager(0);
  }
};

TEST_P(LateAndEagerTest, SavesAndRestoresQueuedState) {
  connect(200'000);  // seven chunks in two slots; seven windows of two slabs, in three slots
  ASSERT_EQ(open_cuda(), CKPT_OK);
  refill();  // still queued when the snapshot is staged
  ASSERT_TRUE(save());
  expect_saved();
  for (int time = 0; time < 2; ++time) {  // the second uses the slots of the first
    spoil_destinations();
    ASSERT_TRUE(restore());
    expect_restored();
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, LateAndEagerTest, testing::Range(0u, 32u));

class StuckDeviceTest : public RoundTripTest {
 protected:
  // Indexes among the streams of one ckpt_cuda_open(), or of one restore.
  static constexpr uint64_t kGather = 1;
  // Enough time for all work that does not wait for the device.
  static constexpr uint32_t kMs = 500;
  static constexpr uint64_t kDrain = 2;
  static constexpr uint64_t kCopy = 1;
  static constexpr uint64_t kUnpack = 2;

  void TearDown() override {
    cuda_emulator::unstick();
    RoundTripTest::TearDown();
  }
  ckpt_status restore_within(uint32_t timeout_ms) {
    ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
    options.step = 1200;
    options.timeout_ms = timeout_ms;
    return ckpt_cuda_restore(cuda_, &options, into_.data(), into_.size(), nullptr,
                             trainer_->stream());
  }
  // Unsticks the device. Each allocation lets it finish some work and free what it held.
  static void expect_released(const cuda_emulator::Holdings& before) {
    cuda_emulator::unstick();
    for (int i = 0; i < 1000 && cuda_emulator::holdings() != before; ++i) {
      ASSERT_TRUE(DeviceArray<std::byte>::make(1).ok());
    }
    EXPECT_EQ(cuda_emulator::holdings(), before);
  }
  bool says(const std::string& text) {
    return std::string(ckpt_cuda_error(cuda_)).find(text) != std::string::npos;
  }
  // Number of windows that ended restores have released.
  int64_t released() {
    daemon_->wait_for(fb::MessageBody::CloseRestore, 1);
    const auto types = daemon_->types();
    return std::count(types.begin(), types.end(), fb::MessageBody::ReleaseWindow);
  }
};

TEST_F(StuckDeviceTest, NoWindowIsReleasedBeforeItWasCopied) {
  connect(200'000);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  cuda_emulator::make_stuck(kCopy);
  EXPECT_EQ(restore_within(kMs), CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_TRUE(says("was not copied within 500 ms")) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(released(), 0);
}

TEST_F(StuckDeviceTest, ThreeWindowsAreInFlightTogether) {
  connect(200'000);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  cuda_emulator::make_stuck(kUnpack);
  EXPECT_EQ(restore_within(kMs), CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_TRUE(says("was not unpacked within 500 ms")) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(released(), 3);
}

TEST_F(StuckDeviceTest, TheNextRestoreWaitsForTheDevice) {
  connect(50'000);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  cuda_emulator::make_stuck(kCopy);
  EXPECT_EQ(restore_within(kMs), CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_EQ(restore_within(5000), CKPT_E_UNAVAILABLE);
  EXPECT_TRUE(says("an earlier restore still uses the device")) << ckpt_cuda_error(cuda_);
  cuda_emulator::unstick();
  ckpt_status status = CKPT_E_UNAVAILABLE;
  // Each retry lets the device finish some more work.
  for (int i = 0; i < 1000 && status == CKPT_E_UNAVAILABLE; ++i) status = restore_within(5000);
  ASSERT_EQ(status, CKPT_OK) << ckpt_cuda_error(cuda_);
  expect_restored();
}

// Memory that the device may still use is kept until the device is done.
TEST_F(StuckDeviceTest, ClosingOnHungDeviceKeepsMemoryInUse) {
  connect(50'000);
  const cuda_emulator::Holdings before = cuda_emulator::holdings();
  ASSERT_EQ(open_cuda(), CKPT_OK);
  cuda_emulator::make_stuck(kCopy);
  EXPECT_EQ(restore_within(kMs), CKPT_E_DEADLINE_EXCEEDED);
  const cuda_emulator::Holdings open = cuda_emulator::holdings();
  EXPECT_EQ(open.streams, before.streams + 4);
  EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_E_DEADLINE_EXCEEDED);
  const cuda_emulator::Holdings closed = cuda_emulator::holdings();
  EXPECT_EQ(closed.registered, open.registered) << "the arena is read from";
  EXPECT_EQ(closed.allocations, open.allocations);
  expect_released(before);
}

// The same for the stager: the drain queue is waited for no longer than the timeout.
TEST_F(StuckDeviceTest, ClosingTimesOutOnStuckSnapshot) {
  connect(50'000);
  const cuda_emulator::Holdings before = cuda_emulator::holdings();
  cuda_emulator::make_stuck(kDrain);
  ASSERT_EQ(open_cuda(/*timeout_ms=*/20), CKPT_OK);
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces_), CKPT_OK);
  EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
  EXPECT_EQ(cuda_emulator::holdings().registered, before.registered + 1);
  expect_released(before);
}

TEST_F(StuckDeviceTest, PollDoesNotBlock) {
  connect(50'000);
  cuda_emulator::make_stuck(kDrain);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces_), CKPT_OK);
  size_t open = 0;
  EXPECT_EQ(ckpt_cuda_poll(cuda_, &open), CKPT_OK);
  EXPECT_EQ(open, 1u);
  cuda_emulator::unstick();
  EXPECT_EQ(ckpt_cuda_drain(cuda_, 20'000), CKPT_OK);
}

TEST_F(StuckDeviceTest, AnUploadEndsAtItsTimeout) {
  cuda_emulator::make_stuck(1);
  auto queue = kernels::make_cuda_queue({.timeout_ms = 20});
  ASSERT_TRUE(queue.ok()) << queue.error().message;
  constexpr size_t kBytes = 3 << 20;  // three times the staging buffer
  auto to = DeviceArray<std::byte>::make(kBytes);
  ASSERT_TRUE(to.ok()) << to.error().message;
  const std::vector<std::byte> from(kBytes);
  (*queue)->upload(to->data(), from.data(), kBytes);
  EXPECT_EQ((*queue)->failed(), "earlier uploads are not done after 20 ms");
  EXPECT_FALSE((*queue)->wait_at_most(0));
  cuda_emulator::unstick();
  EXPECT_TRUE((*queue)->wait_at_most(5000));
}

TEST_F(StuckDeviceTest, OnlyStagingHasLowestPriority) {
  connect(50'000);
  EXPECT_EQ(cuda_emulator::streams_of_priority(cuda_emulator::kLowestPriority), 0u);
  EXPECT_EQ(cuda_emulator::streams_of_priority(cuda_emulator::kHighestPriority), 1u);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  EXPECT_EQ(cuda_emulator::streams_of_priority(cuda_emulator::kLowestPriority), 2u);
  EXPECT_EQ(cuda_emulator::streams_of_priority(cuda_emulator::kHighestPriority), 1u);
}

TEST_F(StuckDeviceTest, DrainTimeoutNamesChunk) {
  connect(50'000);
  cuda_emulator::make_stuck(kGather);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  Snapshot snapshot = begin();
  ASSERT_EQ(stage(snapshot.handle(), pieces_), CKPT_OK);
  EXPECT_EQ(ckpt_cuda_drain(cuda_, 20), CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_TRUE(says("chunk 1 of 3 of a snapshot has not reached the arena"))
      << ckpt_cuda_error(cuda_);
  cuda_emulator::unstick();
  EXPECT_EQ(ckpt_cuda_drain(cuda_, 5000), CKPT_OK) << ckpt_cuda_error(cuda_);
}

// Eager streams: staged bytes have always arrived when a call looks for them.
class EagerTest : public RoundTripTest {
 protected:
  void SetUp() override {
    cuda_emulator::make_eager(~uint64_t{0});
    RoundTripTest::SetUp();
  }
  void TearDown() override {
    RoundTripTest::TearDown();
    cuda_emulator::make_eager(0);
  }
};

TEST_F(EagerTest, IncompleteSnapshotDoesNotAbortNextSnapshot) {
  connect(50'000);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  Snapshot first = begin();
  ASSERT_EQ(stage(first.handle(), {pieces_.begin(), pieces_.end() - 1}), CKPT_OK);
  ++plan_.attempt;
  Snapshot second = begin();
  ASSERT_EQ(stage(second.handle(), pieces_), CKPT_OK) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(first.info().level, CKPT_LEVEL_FAILED);
  EXPECT_EQ(ckpt_cuda_drain(cuda_, 5000), CKPT_E_FAILED_PRECONDITION) << "said after all";
  EXPECT_EQ(ckpt_cuda_drain(cuda_, 5000), CKPT_OK) << ckpt_cuda_error(cuda_);
  EXPECT_NE(second.info().level, CKPT_LEVEL_FAILED);
  expect_saved();
}

class TwoDevicesTest : public RoundTripTest {
 protected:
  void SetUp() override {
    cuda_emulator::set_devices(2);
    RoundTripTest::SetUp();
  }
  void TearDown() override {
    RoundTripTest::TearDown();
    cuda_emulator::set_devices(1);
  }
};

// A kernel of one GPU does not reach the memory of another.
TEST_F(TwoDevicesTest, MemoryOfOtherDeviceIsRefusedNamingUnit) {
  connect(50'000);
  ASSERT_EQ(open_cuda(), CKPT_OK);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  void* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, data_[1].size()), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto wrong = pieces_;
  for (ckpt_cuda_piece& piece : wrong) {
    if (piece.unit == 1) piece.data = static_cast<std::byte*>(other) + piece.offset;
  }
  Snapshot snapshot = begin();
  EXPECT_EQ(stage(snapshot.handle(), wrong), CKPT_E_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find("is memory of device 1, the session's is 0"),
            std::string::npos)
      << ckpt_cuda_error(cuda_);
  auto into = into_;
  into[1].data = other;
  ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
  options.step = 1200;
  EXPECT_EQ(
      ckpt_cuda_restore(cuda_, &options, into.data(), into.size(), nullptr, trainer_->stream()),
      CKPT_E_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find("unit 1: bytes [0, "), std::string::npos)
      << ckpt_cuda_error(cuda_);
  EXPECT_EQ(cudaFree(other), cudaSuccess);
  EXPECT_TRUE(save()) << ckpt_cuda_error(cuda_);
}

// The host runs out of memory at each allocation in its turn. The daemon has one slab: if a failed
// stage kept a place in it, the next snapshot would never get the slab.
TEST_F(RoundTripTest, FailedAllocationInStagingReleasesSlabs) {
  start({.slab_bytes = 64 << 10, .slab_count = 1});
  open({40, 30'000, 3});
  const auto pieces = upload();
  ASSERT_EQ(open_cuda(), CKPT_OK);
  plan_.timeout_ms = 5000;
  bool failed = true;  // the allocation failed: there were enough of them
  for (uint64_t number = 0; failed; ++number) {
    SCOPED_TRACE(testing::Message() << "allocation " << number);
    ++plan_.attempt;
    Snapshot snapshot = begin();
    fail_allocation(number);
    const ckpt_status staged = stage(snapshot.handle(), pieces);
    failed = fail_no_allocation();
    EXPECT_EQ(staged, failed ? CKPT_E_RESOURCE_EXHAUSTED : CKPT_OK) << ckpt_cuda_error(cuda_);
    if (failed) {
      EXPECT_STREQ(ckpt_cuda_error(cuda_), "out of memory");
      EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_FAILED);
    }
    ASSERT_EQ(ckpt_cuda_drain(cuda_, 5000), CKPT_OK) << ckpt_cuda_error(cuda_);
    ++plan_.attempt;
    Snapshot again = begin();
    ASSERT_EQ(stage(again.handle(), pieces), CKPT_OK) << ckpt_cuda_error(cuda_);
    ASSERT_EQ(ckpt_cuda_drain(cuda_, 5000), CKPT_OK) << ckpt_cuda_error(cuda_);
    expect_saved();
    if (HasFailure()) return;
  }
}

// Three chunks in two slots, restored in two windows; ten chunks in eight slots in groups of up to
// two, queued at once or one by one; or ten chunks, some of them direct, with four slots. Rounds
// are short, since each test runs hundreds of them.
struct RoundSizes {
  uint64_t bytes;
  uint64_t gather_bytes;
  uint64_t chunk_bytes;
  bool restores;
  uint64_t ahead_bytes;
  uint64_t direct_bytes = 0;
};
class FailingCallsTest : public RoundTripTest, public testing::WithParamInterface<RoundSizes> {
 protected:
  void SetUp() override {
    gather_bytes_ = GetParam().gather_bytes;
    chunk_bytes_ = GetParam().chunk_bytes;
    ahead_bytes_ = GetParam().ahead_bytes;
    direct_bytes_ = GetParam().direct_bytes;
    RoundTripTest::SetUp();
  }
  // Runs a round, from opening to closing, in which calls [first, first + count) fail. Returns the
  // number of calls.
  uint64_t run_round(uint64_t first, uint64_t count) {
    const cuda_emulator::Holdings before = cuda_emulator::holdings();
    cuda_emulator::fail_calls(first, count);
    bool saved = false;
    bool restored = false;
    if (open_cuda() == CKPT_OK) {
      saved = save();
      restored = GetParam().restores && restore();
      EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_OK);
    }
    const uint64_t calls = cuda_emulator::calls_made();
    cuda_emulator::fail_no_calls();
    EXPECT_EQ(cuda_emulator::holdings(), before) << "something has leaked";
    // A save or restore that reported success did succeed, whichever calls failed.
    if (saved) expect_saved();
    if (restored) expect_restored();
    return calls;
  }
};

TEST_P(FailingCallsTest, FailedCallLeavesSessionUsable) {
  bool failed = true;  // the call failed: the round made that many
  for (uint64_t number = 0; failed; ++number) {
    SCOPED_TRACE(testing::Message() << "call " << number);
    connect(GetParam().bytes);
    failed = number < run_round(number, 1);
    if (HasFailure()) return;
    refill();
    ASSERT_FALSE(trainer_->wait());
    ASSERT_EQ(open_cuda(), CKPT_OK);
    EXPECT_TRUE(save());
    expect_saved();
    if (GetParam().restores) {
      EXPECT_TRUE(restore());
      expect_restored();
    }
    EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_OK);
    disconnect();
    if (HasFailure()) return;
  }
}

// A lost device: all calls from a certain one on fail.
TEST_P(FailingCallsTest, LostDeviceLeavesNothingBehind) {
  bool failed = true;
  for (uint64_t first = 0; failed; ++first) {
    SCOPED_TRACE(testing::Message() << "from call " << first);
    connect(GetParam().bytes);
    failed = first < run_round(first, UINT64_MAX);
    disconnect();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, FailingCallsTest,
                         testing::Values(RoundSizes{50'000, 64 << 10, 32 << 10, true, 0},
                                         RoundSizes{72'000, 64 << 10, 8 << 10, false, 0},
                                         RoundSizes{72'000, 64 << 10, 8 << 10, false, 1},
                                         RoundSizes{72'000, 32 << 10, 8 << 10, false, 0, 2 << 10},
                                         RoundSizes{72'000, 32 << 10, 8 << 10, false, 1, 2 << 10}));

}  // namespace
}  // namespace ckpt::test
