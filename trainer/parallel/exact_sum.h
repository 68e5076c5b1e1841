// ExactSum: a sum of squares of floats without any rounding, so that the order of the terms and
// their distribution over ranks cannot change a bit of the result.
//
// A long fixed-point number (Kulisch, "Computer Arithmetic and Validity", 2013; as superaccumulator
// in Collange et al., Parallel Computing 49, 2015): 32 bits in each of kLimbs 64-bit limbs, which
// leaves 31 bits to delay carries in. The limbs of several ranks add up like any integers.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace moetrain {

class ExactSum {
 public:
  // Squares of floats lie between 2^-298 and 2^256; the rest is room for carries and the sign.
  static constexpr size_t kLimbs = 20;
  static constexpr size_t kValues = kLimbs + 1;  // with the count of NaN and infinities

  void add_squares(std::span<const float> values);

  // This sum as integers. Those of up to 2^20 ranks may be added element by element.
  std::array<int64_t, kValues> values();
  // The rounded sum of values() that were added up; NaN if a term was NaN or infinite.
  static double total(std::span<const int64_t> values);

 private:
  void carry();

  std::array<int64_t, kLimbs> limbs_{};
  int64_t not_finite_ = 0;
  uint64_t added_ = 0;  // since carry()
};

}  // namespace moetrain
