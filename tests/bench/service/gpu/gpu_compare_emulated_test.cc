// Behaviour of the benches when the device is lost; only the emulated device can be lost at will.
#include "tests/bench/service/gpu/gpu_context.h"
#include "tests/support/cuda_emulator/control.h"

namespace bench::gpu {
namespace {

class LostDeviceTest : public GpuContextTest {
 protected:
  void TearDown() override { cuda_emulator::fail_no_calls(); }
};

TEST_F(LostDeviceTest, RecordsFailedRowAndEndsBench) {
  const Rate loses{
      .units_per_call = 1, .call = [] {
        cuda_emulator::fail_calls(0, uint64_t{1} << 40);
        return ckpt::Status(ckpt::make_error(ckpt::ErrorCode::kIo, "an illegal address"));
      }};
  int calls = 0;
  EXPECT_THROW(compare(context(), {.what = "loses"}, loses, counted(calls)), DeviceLost);
  ASSERT_EQ(rows_.size(), 1u);
  EXPECT_EQ(rows_[0].verdict, "fail");
  EXPECT_EQ(rows_[0].reason, "an illegal address");
}

}  // namespace
}  // namespace bench::gpu
