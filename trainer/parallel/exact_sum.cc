#include "trainer/parallel/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "formats/base/assert.h"

namespace moetrain {
namespace {

constexpr int kLimbBits = 32;
constexpr int64_t kLimbMask = (int64_t{1} << kLimbBits) - 1;
// Bit 0 of limb 0 is worth 2^kLowest. The square of the smallest float is 2^-298.
constexpr int kLowest = -298;
// A term adds less than 2^32 to a limb, so a limb takes 2^30 of them.
constexpr uint64_t kTermsMax = uint64_t{1} << 30;
static_assert(static_cast<int>(ExactSum::kLimbs) * kLimbBits > 256 - kLowest + 64,
              "room for 2^64 squares of the largest float");

// A finite float as mantissa * 2^exponent, the mantissa below 2^24.
struct Parts {
  uint64_t mantissa;
  int exponent;
};
Parts parts_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) & 0xff;
  const uint32_t fraction = bits & 0x7fffff;
  return exponent == 0 ? Parts{fraction, -149}
                       : Parts{fraction | 0x800000u, static_cast<int>(exponent) - 150};
}

// Gives every limb but the last 32 bits.
void carry_limbs(std::span<int64_t> limbs) {
  for (size_t i = 0; i + 1 < limbs.size(); ++i) {
    limbs[i + 1] += limbs[i] >> kLimbBits;
    limbs[i] &= kLimbMask;
  }
}

}  // namespace

void ExactSum::add_squares(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++not_finite_;
      continue;
    }
    const Parts parts = parts_of(value);
    const uint64_t square = parts.mantissa * parts.mantissa;  // below 2^48
    const int place = 2 * parts.exponent - kLowest;           // >= 0
    const auto limb = static_cast<size_t>(place / kLimbBits);
    const auto shifted = static_cast<unsigned __int128>(square) << (place % kLimbBits);
    limbs_[limb] += static_cast<int64_t>(static_cast<uint64_t>(shifted) & kLimbMask);
    limbs_[limb + 1] += static_cast<int64_t>(static_cast<uint64_t>(shifted >> 32) & kLimbMask);
    limbs_[limb + 2] += static_cast<int64_t>(static_cast<uint64_t>(shifted >> 64));
    if (++added_ == kTermsMax) carry();
  }
}

void ExactSum::carry() {
  carry_limbs(limbs_);
  added_ = 0;
}

std::array<int64_t, ExactSum::kValues> ExactSum::values() {
  carry();
  std::array<int64_t, kValues> values{};
  std::copy(limbs_.begin(), limbs_.end(), values.begin());
  values[kLimbs] = not_finite_;
  return values;
}

double ExactSum::total(std::span<const int64_t> values) {
  CKPT_ASSERT(values.size() == kValues);
  if (values[kLimbs] != 0) return std::numeric_limits<double>::quiet_NaN();
  std::array<int64_t, kLimbs> limbs{};
  std::copy_n(values.begin(), kLimbs, limbs.begin());
  carry_limbs(limbs);
  // From the largest limb down: equal sums have equal limbs, so they round alike.
  double total = 0;
  for (size_t i = kLimbs; i-- > 0;) {
    total += std::ldexp(static_cast<double>(limbs[i]), kLowest + kLimbBits * static_cast<int>(i));
  }
  return total;
}

}  // namespace moetrain
