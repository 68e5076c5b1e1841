// CRC32C by the threads of a block. A raw state (formats/base/crc32c_polynomial.h) that starts as 0
// is a sum: each word times a power of x that says how far it is from the end. So threads take
// words in turn, each thread multiplies its state by one constant from word to word, and at the
// end the states are multiplied by the thread's own power of x and added up, which is XOR.
//
// Zeros in front of the data change nothing: who has fewer words than the block would take lets
// them end at the last thread, and the first threads start with zeros.
#pragma once

#include "formats/base/crc32c_polynomial.h"
#include "kernels/cuda/launch.h"

namespace ckpt::kernels {

namespace polynomial = base::crc32c_polynomial;

inline constexpr int64_t kCrcWordBytes = 16;
inline constexpr int64_t kCrcRowBytes = kCrcWordBytes * kBlockThreads;

// entry[n][v]: v at the n-th nibble, times a constant. 16 entries are 16 banks of shared memory, so
// lanes that look up nibble n never wait for each other.
struct NibbleTable {
  uint32_t entry[8][16];
};
constexpr NibbleTable nibble_table(uint32_t factor) {
  NibbleTable table{};
  for (uint32_t n = 0; n < 8; ++n) {
    for (uint32_t v = 1; v < 16; ++v) {
      table.entry[n][v] = polynomial::multiply(v << (4 * n), factor);
    }
  }
  return table;
}

// What multiplies the states of a block's threads at the end, if each thread's last word is `bytes`
// long: those of the lanes behind it, then those of the warps behind that.
struct ThreadWeights {
  uint32_t lane[kWarpThreads];
  uint32_t warp[kBlockThreads / kWarpThreads];
};
constexpr ThreadWeights thread_weights(int64_t bytes) {
  ThreadWeights weights{};
  for (unsigned i = 0; i < kWarpThreads; ++i) {
    weights.lane[i] = polynomial::shift_by_bytes(bytes * (kWarpThreads - 1 - i));
  }
  constexpr unsigned kWarps = kBlockThreads / kWarpThreads;
  for (unsigned i = 0; i < kWarps; ++i) {
    weights.warp[i] = polynomial::shift_by_bytes(bytes * kWarpThreads * (kWarps - 1 - i));
  }
  return weights;
}

// factor[bytes] takes back what that many zero bytes at the end did to a raw state.
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

struct Powers {
  uint32_t power[67];
};
constexpr Powers powers_of_x() {
  Powers powers{};
  for (size_t k = 0; k < 67; ++k) powers.power[k] = polynomial::kPowers[k];
  return powers;
}

__device__ inline uint32_t times(const NibbleTable& table, uint32_t state) {
  uint32_t product = 0;
#pragma unroll
  for (unsigned n = 0; n < 8; ++n) product ^= table.entry[n][state >> (4 * n) & 15];
  return product;
}

// The four raw states of a thread that takes a word of 16 bytes from every row of a block.
struct CrcStates {
  uint32_t s[4] = {};

  // `row`: by x^(8 * kCrcRowBytes).
  __device__ void add(const NibbleTable& row, const uint4& word) {
    s[0] = times(row, s[0]) ^ word.x;
    s[1] = times(row, s[1]) ^ word.y;
    s[2] = times(row, s[2]) ^ word.z;
    s[3] = times(row, s[3]) ^ word.w;
  }
  // As one state. `quarter`: by x^32.
  __device__ uint32_t together(const NibbleTable& quarter) const {
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

// The states of all threads as one, the same in every thread. All threads call it; `shared` as in
// block_sum().
__device__ inline uint32_t block_state(uint32_t state, const ThreadWeights& weights,
                                       uint32_t (&shared)[kBlockThreads / kWarpThreads]) {
  const unsigned warp = threadIdx.x / kWarpThreads;
  const unsigned lane = threadIdx.x % kWarpThreads;
  state = warp_xor(polynomial::multiply(weights.lane[lane], state));
  if (lane == 0) shared[warp] = polynomial::multiply(weights.warp[warp], state);
  __syncthreads();
  uint32_t total = 0;
  for (const uint32_t part : shared) total ^= part;
  __syncthreads();
  return total;
}

// x^(8 * bytes), the same in every lane: the lanes share the factors. Whole warps call it.
__device__ inline uint32_t warp_shift(const Powers& powers, uint64_t bytes) {
  const unsigned lane = threadIdx.x % kWarpThreads;
  uint32_t shift = (bytes >> lane & 1) != 0 ? powers.power[3 + lane] : polynomial::kOne;
  if (bytes >> (32 + lane) & 1) shift = polynomial::multiply(shift, powers.power[35 + lane]);
  for (int distance = 16; distance > 0; distance /= 2) {
    shift = polynomial::multiply(shift, __shfl_xor_sync(~0u, shift, distance));
  }
  return shift;
}

}  // namespace ckpt::kernels
