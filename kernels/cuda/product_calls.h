// How many matrix products of unequal shapes go to cuBLAS: in one grouped call, or in a call each.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

enum class ProductCalls : uint8_t { kByShape, kGrouped, kOneByOne };

// The rule behind kByShape. A product that fills the device by itself is faster alone, since cuBLAS
// chooses a kernel for its shape; small ones are faster together, since a call takes the host some
// microseconds. The bound is provisional: 2^31 multiplications take an H200 about 6 us in bf16.
// gpu_bench times both ways ("one by one", "grouped"); its figures decide.
inline constexpr double kOneByOneMultiplications = 2147483648.0;

// `multiplications`: rows * columns * inner, of all products together.
constexpr bool are_faster_one_by_one(int64_t products, double multiplications) {
  return multiplications >= kOneByOneMultiplications * static_cast<double>(products);
}

}  // namespace ckpt::kernels
