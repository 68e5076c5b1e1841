#include "ckptd/restore/restore_speeds.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

using std::chrono::milliseconds;

TEST(RestoreSpeeds, AreThoseOfRestoresFromOneSource) {
  RestoreSpeeds speeds;
  EXPECT_EQ(speeds.memory(), 0);
  EXPECT_EQ(speeds.segment(), 0);
  speeds.finished({.memory = 40'000'000}, milliseconds(10));
  EXPECT_DOUBLE_EQ(speeds.memory(), 4e9);
  EXPECT_EQ(speeds.segment(), 0);
  speeds.finished({.segment = 20'000'000}, milliseconds(10));
  EXPECT_DOUBLE_EQ(speeds.segment(), 2e9);
  speeds.finished({.segment = 10'000'000}, milliseconds(10));
  EXPECT_DOUBLE_EQ(speeds.segment(), 1.5e9) << "the newer half, the older half";
  EXPECT_DOUBLE_EQ(speeds.memory(), 4e9);
}

TEST(RestoreSpeeds, LearnNothingFromWhatTellsNone) {
  RestoreSpeeds speeds;
  speeds.finished({}, milliseconds(10));
  speeds.finished({.memory = RestoreSpeeds::kBytesMin - 1}, milliseconds(10));
  speeds.finished({.memory = 40'000'000, .segment = 1}, milliseconds(10));
  speeds.finished({.memory = 40'000'000}, milliseconds(0));
  EXPECT_EQ(speeds.memory(), 0);
  EXPECT_EQ(speeds.segment(), 0);
}

}  // namespace
}  // namespace ckptd
