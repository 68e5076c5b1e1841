// How many matrix products of unequal shapes go to cuBLAS: in one grouped call, or in a call each.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

enum class ProductCalls : uint8_t { kByShape, kGrouped, kOneByOne };

// The rule behind kByShape. A product that fills the device by itself is faster alone, since cuBLAS
// chooses a kernel for its shape. Small products are faster in one call: each call takes the host
// some microseconds, and more if the shape is new to cuBLAS, as an expert's is in every step.
// Measured on an H200 in bf16: 2^33 multiplications take 24 us. Products of 2^34.4: 583 TFLOP/s one
// by one, 266 grouped. Training steps with products of 2^31: 583 ktok/s one by one, 785 grouped.
// Sizes in between were not measured.
inline constexpr double kOneByOneMultiplications = 8589934592.0;

// `multiplications`: rows * columns * inner, of all products together.
constexpr bool are_faster_one_by_one(int64_t products, double multiplications) {
  return multiplications >= kOneByOneMultiplications * static_cast<double>(products);
}

}  // namespace ckpt::kernels
