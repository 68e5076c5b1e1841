// Resources that a restore keeps for the next one, and when they are freed. Emulated device only.
#include "tests/client/cuda_client_fixture.h"
#include "tests/client/restoring_daemon.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::test {
namespace {

class CudaReuseTest : public CudaClientTest {
 protected:
  // Slabs of 256 KiB: unit 0 takes one small window, unit 1 several windows that fill their slabs.
  void connect() {
    restoring_.emplace(data_, 50'000);
    start({}, restoring_->answers(daemon_));
    open_with_cuda({3000, 900'000}, kSmall);
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      auto array = DeviceArray<std::byte>::make(data_[unit].size());
      ASSERT_TRUE(array.ok());
      into_.push_back({unit, 0, array->data(), data_[unit].size()});
      tensors_.push_back(std::move(array).value());
    }
    opened_ = cuda_emulator::holdings();
  }
  void restore(uint32_t unit) {
    cudaMemsetAsync(into_[unit].data, 0x55, into_[unit].length, trainer_->stream());
    ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
    options.step = 1200;
    ASSERT_EQ(ckpt_cuda_restore(cuda_, &options, &into_[unit], 1, nullptr, trainer_->stream()),
              CKPT_OK)
        << ckpt_cuda_error(cuda_);
    std::vector<char> found(into_[unit].length);
    ASSERT_TRUE(kernels::download(*trainer_, found.data(), into_[unit].data, found.size()).ok());
    EXPECT_TRUE(found == data_[unit]);
  }

  std::optional<RestoringDaemon> restoring_;
  std::vector<ckpt_cuda_destination> into_;
  cuda_emulator::Holdings opened_;
};

TEST_F(CudaReuseTest, LaterRestoresAllocateAndFreeNothing) {
  connect();
  restore(1);
  const uint64_t before = cuda_emulator::slow_calls_made();
  restore(1);
  restore(0);
  EXPECT_EQ(cuda_emulator::slow_calls_made(), before);
}

// Each slot has five arrays: the window, and tables and CRCs on both sides.
TEST_F(CudaReuseTest, OutgrownSlotMemoryIsFreedWithRestore) {
  connect();
  restore(0);
  EXPECT_EQ(cuda_emulator::holdings().allocations, opened_.allocations + 2 * 2 + 5)
      << "two queues, and one slot";
  restore(1);
  EXPECT_EQ(cuda_emulator::holdings().allocations, opened_.allocations + 2 * 2 + 3 * 5);
}

TEST_F(CudaReuseTest, TrimFreesAllAndNextRestoreReallocates) {
  connect();
  ASSERT_EQ(ckpt_cuda_trim(cuda_), CKPT_OK) << "nothing is there yet";
  restore(1);
  EXPECT_NE(cuda_emulator::holdings(), opened_);
  ASSERT_EQ(ckpt_cuda_trim(cuda_), CKPT_OK) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(cuda_emulator::holdings(), opened_);
  restore(1);
}

TEST_F(CudaReuseTest, TrimIsUnavailableWhileFailedRestoreRuns) {
  connect();
  cuda_emulator::make_stuck(1);  // the copy queue, the next stream to be made
  ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
  options.step = 1200;
  options.timeout_ms = 100;
  EXPECT_EQ(ckpt_cuda_restore(cuda_, &options, &into_[1], 1, nullptr, trainer_->stream()),
            CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_EQ(ckpt_cuda_trim(cuda_), CKPT_E_UNAVAILABLE);
  cuda_emulator::unstick();
  ckpt_status trimmed = CKPT_E_UNAVAILABLE;
  // Each retry lets the device finish some more work.
  for (int i = 0; i < 1000 && trimmed == CKPT_E_UNAVAILABLE; ++i) trimmed = ckpt_cuda_trim(cuda_);
  EXPECT_EQ(trimmed, CKPT_OK) << ckpt_cuda_error(cuda_);
  EXPECT_EQ(cuda_emulator::holdings(), opened_);
}

}  // namespace
}  // namespace ckpt::test
