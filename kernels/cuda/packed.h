// Packs of adjacent values: a thread moves 16 bytes with one instruction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace ckpt::kernels {

inline constexpr size_t kPackBytes = 16;

// kCount values. A pack of more than 16 bytes takes several instructions.
template <typename T, int kCount>
struct alignas(std::min(sizeof(T) * kCount, kPackBytes)) Packed {
  T values[kCount];
};
template <typename T>
inline constexpr int kPackCount = static_cast<int>(kPackBytes / sizeof(T));

template <int kCount, typename T>
__device__ inline Packed<T, kCount> load_packed(const T* at) {
  return *reinterpret_cast<const Packed<T, kCount>*>(at);
}
// Calls store(address, value) for every 16 bytes of a pack, or for its 8 bytes. Uses intrinsics,
// since nvcc splits a struct's store and does not always rejoin the parts. Assigns smaller packs.
template <typename T, int kCount, typename Store>
__device__ inline void store_packed_by(T* at, const Packed<T, kCount>& pack, Store store) {
  if constexpr (sizeof pack % sizeof(uint4) == 0) {
    struct Accesses {
      uint4 at[sizeof(Packed<T, kCount>) / sizeof(uint4)];
    };
    const auto accesses = std::bit_cast<Accesses>(pack);
    for (size_t i = 0; i < sizeof pack / sizeof(uint4); ++i) {
      store(reinterpret_cast<uint4*>(at) + i, accesses.at[i]);
    }
  } else if constexpr (sizeof pack == sizeof(uint2)) {
    store(reinterpret_cast<uint2*>(at), std::bit_cast<uint2>(pack));
  } else {
    *reinterpret_cast<Packed<T, kCount>*>(at) = pack;
  }
}
template <typename T, int kCount>
__device__ inline void store_packed(T* at, const Packed<T, kCount>& pack) {
  store_packed_by(at, pack, [](auto* to, auto value) { __stwb(to, value); });
}
// Same, with streaming stores, for values that are not read again soon: other data stays in the
// cache.
template <typename T, int kCount>
__device__ inline void store_packed_once(T* at, const Packed<T, kCount>& pack) {
  store_packed_by(at, pack, [](auto* to, auto value) { __stcs(to, value); });
}

// True if rows of `width` values at these addresses can be accessed in packs of `count`. Kernels
// have a version with packs of one value for all other rows.
template <typename... T>
bool packable(int64_t width, int count, const T*... rows) {
  return width % count == 0 && ((reinterpret_cast<uintptr_t>(rows) % kPackBytes == 0) && ...);
}

// A launch over rows. A row gets as many threads as it has packs, at least a warp and at most a
// block; the rest of the block takes the next rows.
struct RowLaunch {
  dim3 grid;
  dim3 block;
};
inline RowLaunch launch_over_rows(int64_t rows, int64_t packs) {
  unsigned across = kWarpThreads;
  while (across < kBlockThreads && across < packs) across *= 2;
  const unsigned down = kBlockThreads / across;
  return {blocks_for(rows, down), dim3(across, down)};
}
// First row of a thread in such a launch, and the distance to its next row.
__device__ inline int64_t first_row() { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }
__device__ inline int64_t row_stride() { return int64_t{gridDim.x} * blockDim.y; }

}  // namespace ckpt::kernels
