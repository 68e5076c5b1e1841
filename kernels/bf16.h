// bfloat16: the upper half of an fp32. Plain bits, so that a header without CUDA can name the type.
#pragma once

#include <bit>
#include <cstdint>

// Marks functions that kernels also call.
#ifdef __CUDACC__
#define CKPT_HOST_DEVICE __host__ __device__
#else
#define CKPT_HOST_DEVICE
#endif

namespace ckpt::kernels {

struct Bf16 {
  uint16_t bits;
};
static_assert(sizeof(Bf16) == 2);

CKPT_HOST_DEVICE inline float to_float(float value) { return value; }
CKPT_HOST_DEVICE inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even. NaN stays NaN, with its sign; overflow becomes infinity.
CKPT_HOST_DEVICE inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// Converts to the type that a kernel computes in; float is unchanged.
template <typename Real>
CKPT_HOST_DEVICE inline Real from_float(float value);
template <>
CKPT_HOST_DEVICE inline float from_float<float>(float value) {
  return value;
}
template <>
CKPT_HOST_DEVICE inline Bf16 from_float<Bf16>(float value) {
  return to_bf16(value);
}

}  // namespace ckpt::kernels
