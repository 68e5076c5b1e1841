// How many matrix products of unequal shapes go to cuBLAS: in one grouped call, or in a call each.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

enum class ProductCalls : uint8_t { kByShape, kGrouped, kOneByOne };

// The rule behind kByShape. A product that fills the device by itself is faster alone, since cuBLAS
// chooses a kernel for its shape; small ones are faster together, since a call takes the host some
// microseconds. In bf16 an H200 does 2^30 multiplications in 4 us alone and in 8 us in a grouped
// call (270 of 600 TFLOP/s; gpu_bench times both ways), and a call takes the host about as long.
inline constexpr double kOneByOneMultiplications = 1073741824.0;

// `multiplications`: rows * columns * inner, of all products together.
constexpr bool are_faster_one_by_one(int64_t products, double multiplications) {
  return multiplications >= kOneByOneMultiplications * static_cast<double>(products);
}

}  // namespace ckpt::kernels
