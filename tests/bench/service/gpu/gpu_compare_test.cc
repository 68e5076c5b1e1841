// Rows of gpu_bench, and the pass that computes only the CRCs of a state.
#include <gtest/gtest.h>

#include "bench/service/gpu/state_crc.h"
#include "formats/base/crc32c.h"
#include "tests/bench/service/gpu/gpu_context.h"

namespace bench::gpu {
namespace {

class GpuCompareTest : public GpuContextTest {};

TEST_F(GpuCompareTest, SkipsRowsListedInSettings) {
  settings_.skip = {"known"};
  int calls = 0;
  const Rate rate = counted(calls);
  compare(context(), {.what = "known"}, rate, rate);
  EXPECT_EQ(calls, 0);
  compare(context(), {.what = "new"}, rate, rate);
  EXPECT_GT(calls, 0);
  ASSERT_EQ(rows_.size(), 1u);
  EXPECT_EQ(rows_[0].what, "new");
}

TEST_F(GpuCompareTest, WarmsDeviceUpOnceBeforeFirstPair) {
  const auto calls_of_two_rows = [&](double warm_up_seconds) {
    settings_.warm_up_seconds = warm_up_seconds;
    const Context both = context();
    std::vector<int> calls;
    for (const char* const what : {"first", "second"}) {
      int count = 0;
      compare(both, {.what = what}, counted(count), counted(count));
      calls.push_back(count);
    }
    return calls;
  };
  const std::vector<int> cold = calls_of_two_rows(0);
  EXPECT_EQ(cold[0], cold[1]);
  const std::vector<int> warm = calls_of_two_rows(1e-9);
  EXPECT_GT(warm[0], cold[0]);
  EXPECT_EQ(warm[1], cold[1]);
}

TEST_F(GpuCompareTest, FailedCallFailsItsRowOnly) {
  const Rate fails{
      .units_per_call = 1, .call = [] {
        return ckpt::Status(ckpt::make_error(ckpt::ErrorCode::kCorrupt, "wrong bytes"));
      }};
  int calls = 0;
  compare(context(), {.what = "wrong"}, fails, counted(calls));
  compare(context(), {.what = "right"}, counted(calls), counted(calls));
  ASSERT_EQ(rows_.size(), 2u);
  EXPECT_EQ(rows_[0].verdict, "fail");
  EXPECT_EQ(rows_[0].reason, "wrong bytes");
  EXPECT_EQ(rows_[1].verdict, "measured");
}

TEST_F(GpuCompareTest, StateCrcReadsPiecesInPlace) {
  constexpr uint64_t kBytes = 300'000;
  std::vector<std::byte> content(kBytes);
  for (uint64_t i = 0; i < kBytes; ++i) content[i] = static_cast<std::byte>(i * i / 7);
  auto state = ckpt::kernels::DeviceArray<std::byte>::make(kBytes);
  ASSERT_TRUE(state.ok()) << state.error().message;
  queue().upload(state->data(), content.data(), kBytes);
  ASSERT_TRUE(synchronize(queue()).ok());
  // In no order, with a gap, and at odd addresses, by a single block.
  const std::vector<std::pair<uint64_t, uint64_t>> places{
      {200'001, 70'000}, {5, 1}, {16, 100'000}, {150'000, 0}};
  std::vector<ckpt_cuda_piece> pieces;
  for (const auto& [at, length] : places) pieces.push_back({0, 0, state->data() + at, length});
  const auto crc = StateCrc::make(pieces, queue().device());
  ASSERT_TRUE(crc.ok()) << crc.error().message;
  ASSERT_TRUE((*crc)->begin(queue().stream(), /*blocks_max=*/1).ok());
  ASSERT_TRUE((*crc)->finish().ok());
  const auto found = (*crc)->crc();
  ASSERT_TRUE(found.ok()) << found.error().message;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [at, length] = places[i];
    EXPECT_EQ((*found)[i], ckpt::base::crc32c(ckpt::ByteView(content.data() + at, length))) << i;
  }
}

}  // namespace
}  // namespace bench::gpu
