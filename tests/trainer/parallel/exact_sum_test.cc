// A sum of squares that does not depend on order or distribution.
#include "trainer/parallel/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace moetrain {
namespace {

double sum_of(std::span<const float> values) {
  ExactSum sum;
  sum.add_squares(values);
  return ExactSum::total(sum.values());
}

// Values of all magnitudes that a float has.
std::vector<float> random_floats(size_t count, int exponent_min, int exponent_max) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<float> values;
  values.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto exponents = static_cast<uint64_t>(exponent_max - exponent_min) + 1;
    const int exponent = exponent_min + static_cast<int>(random() % exponents);
    values.push_back(std::ldexp(mantissa(random), exponent));
  }
  return values;
}

TEST(ExactSum, IsExactIfDoubleHoldsSum) {
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of(std::vector<float>{3, -4}), 25.0);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sum_of(std::vector<float>{tiny}), std::ldexp(1.0, -298));
  const float max = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of(std::vector<float>{max}), static_cast<double>(max) * static_cast<double>(max));
  EXPECT_EQ(sum_of(std::vector<float>(4, max)), 4.0 * max * max);
}

TEST(ExactSum, SmallTermsAreNotLostBesideLargeOnes) {
  std::vector<float> values(1, 0x1p26f);
  values.insert(values.end(), 1u << 12, 0x1p-1f);  // each square is below half an ulp of 2^52
  EXPECT_EQ(sum_of(values), 0x1p52 + 0x1p10);
}

TEST(ExactSum, AgreesWithDoublesToRounding) {
  const std::vector<float> values = random_floats(20'000, -12, 3);
  long double expected = 0;
  for (const float value : values) {
    expected += static_cast<long double>(value) * static_cast<long double>(value);
  }
  EXPECT_NEAR(sum_of(values), static_cast<double>(expected), 1e-15 * static_cast<double>(expected));
}

TEST(ExactSum, NeitherOrderNorDistributionChangesABit) {
  std::vector<float> values = random_floats(5'000, -149, 126);
  const double expected = sum_of(values);
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    std::ranges::shuffle(values, random);
    const size_t ranks = 1 + random() % 9;
    std::vector<ExactSum> parts(ranks);
    for (const float value : values) {
      parts[random() % ranks].add_squares(std::span(&value, 1));
    }
    std::vector<int64_t> all(ExactSum::kValues);
    for (ExactSum& part : parts) {
      const auto limbs = part.values();
      for (size_t i = 0; i < all.size(); ++i) all[i] += limbs[i];
    }
    EXPECT_EQ(ExactSum::total(all), expected);
  }
}

TEST(ExactSum, NonFiniteTermMakesSumNaN) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(std::isnan(sum_of(std::vector<float>{1, bad, 2})));
  }
}

}  // namespace
}  // namespace moetrain
