// Device side of the emulator: the language's own words, vectors, the threads of a block and their
// exchanges. A part of the emulated cuda_runtime.h, which documents the scope of the emulation.
#pragma once

// NOLINTBEGIN(readability-identifier-naming): names as CUDA has them

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
// Blocks of a host thread run one after the other.
#define __shared__ static thread_local

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned with_x = 1, unsigned with_y = 1, unsigned with_z = 1)
      : x(with_x), y(with_y), z(with_z) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

// Indexes of the fiber that runs.
extern thread_local uint3 threadIdx;
extern thread_local uint3 blockIdx;
extern thread_local dim3 blockDim;
extern thread_local dim3 gridDim;

namespace cuda_emulator {

void sync_threads();
bool sync_threads_and(bool mine);
void sync_warp();
unsigned lane();
// Every lane of the warp gives 8 bytes, and gets the bytes of lane `from`.
uint64_t exchange_bits(uint64_t mine, unsigned from);
unsigned ballot(bool mine);

template <typename T>
T exchange(T mine, unsigned from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &mine, sizeof mine);
  bits = exchange_bits(bits, from);
  std::memcpy(&mine, &bits, sizeof mine);
  return mine;
}

}  // namespace cuda_emulator

// --- on the device ---------------------------------------------------------------------------

inline void __syncthreads() { cuda_emulator::sync_threads(); }
inline int __syncthreads_and(int predicate) {
  return cuda_emulator::sync_threads_and(predicate != 0) ? 1 : 0;
}
inline void __syncwarp(unsigned = ~0u) { cuda_emulator::sync_warp(); }
inline void __threadfence() {}
inline void __threadfence_system() {}
template <typename T>
T __shfl_sync(unsigned, T value, int from, int width = 32) {
  const unsigned base = cuda_emulator::lane() / width * width;
  return cuda_emulator::exchange(value, base + static_cast<unsigned>(from) % width);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
  return cuda_emulator::exchange(value, cuda_emulator::lane() ^ static_cast<unsigned>(mask));
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  const unsigned at = cuda_emulator::lane();
  const bool inside = at % width + delta < static_cast<unsigned>(width);
  return cuda_emulator::exchange(value, inside ? at + delta : at);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  const unsigned at = cuda_emulator::lane();
  return cuda_emulator::exchange(value, at % width >= delta ? at - delta : at);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  return cuda_emulator::ballot(predicate != 0);
}
// Maximum over the whole warp, the same in each lane.
inline int __reduce_max_sync(unsigned, int value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = std::max(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}
inline int __reduce_min_sync(unsigned, int value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = std::min(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}
template <typename T>
T __ldg(const T* at) {
  return *at;
}
// By memcpy, because the memory may hold objects of another type.
template <typename T>
void __stwb(T* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
// The same, for data that the cache need not keep.
template <typename T>
void __stcs(T* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
// By memcpy, too; past one cache or all.
template <typename T>
T __ldcs(const T* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <typename T>
T __ldcg(const T* at) {
  return __ldcs(at);
}
// Fibers share one host thread: a plain read-modify-write is atomic among them.
template <typename T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T before = *at;
  *at = std::max(before, value);
  return before;
}
template <typename T>
T atomicExch(T* at, T value) {
  return std::exchange(*at, value);
}
template <typename T>
T atomicCAS(T* at, T expected, T value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}
inline unsigned atomicOr(unsigned* at, unsigned value) {
  const unsigned before = *at;
  *at = before | value;
  return before;
}
inline unsigned atomicXor(unsigned* at, unsigned value) {
  const unsigned before = *at;
  *at = before ^ value;
  return before;
}
// Never fused with another operation.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i, x >>= 1) reversed = reversed << 1 | (x & 1);
  return reversed;
}
// The low half of {high, low}, moved right by less than 32 bits.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (bits & 31));
}
// Bytes of {y, x} picked by the four low nibbles of `selector`; no sign replication.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> (4 * i) & 7;
    result |= static_cast<unsigned>(both >> (8 * pick) & 0xff) << (8 * i);
  }
  return result;
}

// NOLINTEND(readability-identifier-naming)
