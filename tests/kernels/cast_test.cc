#include "kernels/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace ckpt::kernels {
namespace {

uint16_t narrowed(float value) {
  Bf16 narrow{};
  cast(1, &value, &narrow);
  return narrow.bits;
}

float widened(uint16_t bits) {
  const Bf16 narrow{bits};
  float wide = 0;
  cast(1, &narrow, &wide);
  return wide;
}

TEST(Cast, EveryBf16RoundTripsThroughFloat) {
  std::vector<Bf16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  std::vector<Bf16> back(all.size());
  cast(static_cast<int64_t>(all.size()), all.data(), wide.data());
  cast(static_cast<int64_t>(all.size()), wide.data(), back.data());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), static_cast<uint32_t>(i) << 16);
    const uint32_t quiet = std::isnan(wide[i]) ? 0x40 : 0;
    ASSERT_EQ(back[i].bits, i | quiet);
  }
}

TEST(Cast, RoundsToNearestAndTiesToEven) {
  for (uint32_t i = 0; i < 0x7f7f; ++i) {  // every finite value with a finite one above
    const auto here = static_cast<uint16_t>(i);
    const auto above = static_cast<uint16_t>(i + 1);
    const float tie = std::bit_cast<float>(i << 16 | 0x8000);
    ASSERT_EQ(2.0 * tie, static_cast<double>(widened(here)) + widened(above));
    const uint16_t even = here % 2 == 0 ? here : above;
    ASSERT_EQ(narrowed(tie), even);
    ASSERT_EQ(narrowed(-tie), even | 0x8000);
    ASSERT_EQ(narrowed(std::nextafterf(tie, 0.0f)), here);
    ASSERT_EQ(narrowed(std::nextafterf(tie, INFINITY)), above);
  }
}

TEST(Cast, OverflowBecomesInfinite) {
  const float largest = widened(0x7f7f);
  const float tie = std::bit_cast<float>(0x7f7f8000u);
  EXPECT_EQ(narrowed(std::nextafterf(tie, 0.0f)), 0x7f7f);
  EXPECT_EQ(narrowed(tie), 0x7f80);
  EXPECT_EQ(narrowed(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(narrowed(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_EQ(narrowed(INFINITY), 0x7f80);
  EXPECT_EQ(narrowed(-INFINITY), 0xff80);
  EXPECT_EQ(narrowed(-largest), 0xff7f);
}

TEST(Cast, NaNStaysNaNWithItsSign) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x7f80ffffu}) {
    EXPECT_TRUE(std::isnan(widened(narrowed(std::bit_cast<float>(bits)))));
    EXPECT_EQ(narrowed(std::bit_cast<float>(bits | 0x80000000)) & 0x8000, 0x8000);
  }
}

}  // namespace
}  // namespace ckpt::kernels
