#include "ckptd/persist/write_meter.h"

#include <gtest/gtest.h>

#include "ckptd/limits.h"

namespace ckptd {
namespace {

using std::chrono::milliseconds;
constexpr uint64_t kMiB = 1u << 20;

// Pieces of 4 MiB, so many at once, each a millisecond after the other.
void write(WriteMeter& meter, milliseconds& now, int pieces, int depth) {
  int begun = 0;
  for (; begun < std::min(pieces, depth); ++begun) meter.began(now);
  for (int ended = 0; ended < pieces; ++ended) {
    now += milliseconds(1);
    meter.ended(now, 4 * kMiB);
    if (begun < pieces) {
      meter.began(now);
      ++begun;
    }
  }
}

TEST(WriteMeter, IdleTimeDoesNotCount) {
  WriteMeter meter;
  milliseconds now{0};
  EXPECT_EQ(meter.bytes_per_second(), 0);
  for (int i = 0; i < 5; ++i) {
    write(meter, now, 8, 4);
    EXPECT_NEAR(meter.bytes_per_second(), 4 * kMiB * 1e3, 1) << "idle time does not count";
    now += milliseconds(10'000);
  }
}

TEST(WriteMeter, ReportsRateDuringLongStretch) {
  WriteMeter meter;
  for (int i = 0; i < 4; ++i) meter.began(milliseconds(0));
  milliseconds now{0};
  for (uint64_t bytes = 0; bytes < limits::kRateStretchBytesMax; bytes += 4 * kMiB) {
    EXPECT_EQ(meter.bytes_per_second(), 0);
    now += milliseconds(2);
    meter.began(now);
    meter.ended(now, 4 * kMiB);
  }
  EXPECT_NEAR(meter.bytes_per_second(), 2 * kMiB * 1e3, 1);
}

TEST(WriteMeter, IgnoresStretchesBelowTheMinimum) {
  WriteMeter meter;
  meter.began(milliseconds(0));
  meter.ended(milliseconds(100), limits::kRateStretchBytesMin - 1);
  EXPECT_EQ(meter.bytes_per_second(), 0);
}

TEST(WriteMeter, ShortStretchMayRaiseTheRate) {
  WriteMeter meter;
  meter.began(milliseconds(0));
  meter.ended(milliseconds(100), 8 * kMiB);
  const double slow = meter.bytes_per_second();
  meter.began(milliseconds(200));
  meter.ended(milliseconds(210), 1000);
  EXPECT_EQ(meter.bytes_per_second(), slow) << "it may have been the latency";
  meter.began(milliseconds(300));
  meter.ended(milliseconds(301), kMiB);
  EXPECT_GT(meter.bytes_per_second(), slow);
  EXPECT_LT(meter.bytes_per_second(), kMiB * 1e3);
}

TEST(WriteMeter, LongStretchOfFewBytesLowersTheRate) {
  WriteMeter meter;
  meter.began(milliseconds(0));
  meter.ended(milliseconds(10), 64 * kMiB);  // into a cache
  milliseconds now{10};
  for (int i = 0; i < 10; ++i) {
    meter.began(now);
    now += milliseconds(1'500);
    meter.ended(now, 3 * kMiB);
  }
  EXPECT_NEAR(meter.bytes_per_second(), 2 * kMiB, 0.1 * kMiB);
}

// The meter follows a slower disk gradually.
TEST(WriteMeter, FollowsSlowerDiskGradually) {
  WriteMeter meter;
  meter.began(milliseconds(0));
  meter.ended(milliseconds(10), 64 * kMiB);
  const double fast = meter.bytes_per_second();
  double before = fast;
  milliseconds now{10};
  for (int i = 0; i < 8; ++i) {
    meter.began(now);
    now += milliseconds(100);
    meter.ended(now, 64 * kMiB);
    EXPECT_LT(meter.bytes_per_second(), before);
    before = meter.bytes_per_second();
  }
  EXPECT_NEAR(before, fast / 10, fast / 100);
}

}  // namespace
}  // namespace ckptd
