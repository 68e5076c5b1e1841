// How many matrix products of unequal shapes go to cuBLAS: in one grouped call, or in a call each.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

enum class ProductCalls : uint8_t { kByShape, kGrouped, kOneByOne };

// The rule behind kByShape. A product that fills the device by itself is faster alone, since cuBLAS
// chooses a kernel for its shape; small ones are faster together, since a call takes the host some
// microseconds, and more where the shape is new to cuBLAS, as an expert's is in every step. 2^33
// multiplications take an H200 24 us in bf16. Measured there: products of 2^34.4, one by one 583
// TFLOP/s, grouped 266; training steps whose products are of 2^31, one by one 583 ktok/s, grouped
// 785. What lies between was not measured.
inline constexpr double kOneByOneMultiplications = 8589934592.0;

// `multiplications`: rows * columns * inner, of all products together.
constexpr bool are_faster_one_by_one(int64_t products, double multiplications) {
  return multiplications >= kOneByOneMultiplications * static_cast<double>(products);
}

}  // namespace ckpt::kernels
