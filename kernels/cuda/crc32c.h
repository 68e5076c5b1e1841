// CRC32C by the threads of a block. A raw state (formats/base/crc32c_polynomial.h) that starts as 0
// is a sum: each word times the power of x for its distance from the end. So threads take words in
// turn. From word to word, each thread multiplies its state by one constant. At the end, each
// state is multiplied by its thread's own power of x, and all are added up, which is XOR.
//
// Zeros in front of the data change nothing. So data with fewer words than the block takes ends at
// the last thread, and the first threads start with zeros.
#pragma once

#include "formats/base/crc32c_polynomial.h"
#include "kernels/cuda/launch.h"

namespace ckpt::kernels {

namespace polynomial = base::crc32c_polynomial;

inline constexpr int64_t kCrcWordBytes = 16;
inline constexpr int64_t kCrcRowBytes = kCrcWordBytes * kBlockThreads;

// entry[n][v]: v at the n-th field of five bits, times a constant. 32 entries are the 32 banks of
// shared memory, so lanes that look up one field never wait for each other.
inline constexpr unsigned kFieldBits = 5;
inline constexpr unsigned kFieldValues = 1u << kFieldBits;
inline constexpr unsigned kFields = (32 + kFieldBits - 1) / kFieldBits;
struct FieldTable {
  uint32_t entry[kFields][kFieldValues];
};
constexpr FieldTable field_table(uint32_t factor) {
  FieldTable table{};
  for (unsigned n = 0; n < kFields; ++n) {
    for (uint32_t v = 1; v < kFieldValues; ++v) {
      table.entry[n][v] = polynomial::multiply(v << (kFieldBits * n), factor);
    }
  }
  return table;
}

// The factors that multiply the states of kCount threads at the end: each thread's last word is
// `bytes` long, and the words of the threads behind it follow.
template <unsigned kCount>
struct Weights {
  uint32_t thread[kCount];
};
template <unsigned kCount>
constexpr Weights<kCount> weights_of(uint64_t bytes) {
  Weights<kCount> weights{};
  const uint32_t step = polynomial::shift_by_bytes(bytes);
  uint32_t weight = polynomial::kOne;
  for (unsigned i = kCount; i-- > 0; weight = polynomial::multiply(weight, step)) {
    weights.thread[i] = weight;
  }
  return weights;
}

// factor[bytes] undoes the effect of that many zero bytes at the end of a raw state.
struct ZerosTaken {
  uint32_t factor[kCrcWordBytes];
};
constexpr ZerosTaken zeros_taken() {
  ZerosTaken taken{};
  uint32_t factor = polynomial::kOne;
  for (int64_t i = 0; i < kCrcWordBytes; ++i) {
    taken.factor[i] = factor;
    for (int bit = 0; bit < 8; ++bit) factor = polynomial::divided_by_x(factor);
  }
  return taken;
}

// factor[k][v]: x^(8 * v * 256^k).
struct ByteShifts {
  uint32_t factor[6][256];  // enough for any size of memory
};
constexpr ByteShifts byte_shifts() {
  ByteShifts shifts{};
  for (unsigned k = 0; k < 6; ++k) {
    const uint32_t step = polynomial::kPowers[3 + 8 * k];
    shifts.factor[k][0] = polynomial::kOne;
    for (unsigned v = 1; v < 256; ++v) {
      shifts.factor[k][v] = polynomial::multiply(shifts.factor[k][v - 1], step);
    }
  }
  return shifts;
}
// x^(8 * bytes).
__device__ inline uint32_t shift_by(const ByteShifts& shifts, uint64_t bytes) {
  uint32_t shift = shifts.factor[0][bytes & 255];
  for (unsigned k = 1; (bytes >>= 8) != 0; ++k) {
    shift = polynomial::multiply(shifts.factor[k][bytes & 255], shift);
  }
  return shift;
}

// Copies to shared memory, by all threads of a block. The block needs a barrier afterwards.
__device__ inline void fill(FieldTable& to, const FieldTable& from) {
  static_assert(kFields * kFieldValues <= kBlockThreads);
  const unsigned n = threadIdx.x / kFieldValues;
  const unsigned v = threadIdx.x % kFieldValues;
  if (n < kFields) to.entry[n][v] = from.entry[n][v];
}

__device__ inline uint32_t times(const FieldTable& table, uint32_t state) {
  uint32_t product = 0;
#pragma unroll
  for (unsigned n = 0; n < kFields; ++n) {
    product ^= table.entry[n][state >> (kFieldBits * n) & (kFieldValues - 1)];
  }
  return product;
}

// The four raw states of a thread that takes a word of 16 bytes from every row of a block.
struct CrcStates {
  uint32_t s[4] = {};

  // Appends a word. `row`: multiplies by x^(8 * kCrcRowBytes).
  __device__ void add(const FieldTable& row, const uint4& word) {
    s[0] = times(row, s[0]) ^ word.x;
    s[1] = times(row, s[1]) ^ word.y;
    s[2] = times(row, s[2]) ^ word.z;
    s[3] = times(row, s[3]) ^ word.w;
  }
  // Combines the four states. `quarter`: multiplies by x^32.
  __device__ uint32_t together(const FieldTable& quarter) const {
    uint32_t state = s[0];
    for (int i = 1; i < 4; ++i) state = times(quarter, state) ^ s[i];
    return times(quarter, state);
  }
};

__device__ inline uint32_t warp_xor(uint32_t value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value ^= __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

// Combines the states of all threads, in the first thread. All threads call this; `shared` may not
// be used for anything else until the block has passed a barrier.
__device__ inline uint32_t block_state(uint32_t state, const Weights<kBlockThreads>& weights,
                                       uint32_t (&shared)[kBlockThreads / kWarpThreads]) {
  state = warp_xor(polynomial::multiply(weights.thread[threadIdx.x], state));
  if (threadIdx.x % kWarpThreads == 0) shared[threadIdx.x / kWarpThreads] = state;
  __syncthreads();
  uint32_t total = 0;
  if (threadIdx.x == 0) {
    for (const uint32_t part : shared) total ^= part;
  }
  return total;
}

}  // namespace ckpt::kernels
