// Distribution of a token's experts over the lanes of a warp, for the gate's kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/gate_topk.h"

namespace ckpt::kernels::gate_lanes {

// A token's experts are dealt to a group of kLanes lanes of a warp in packs of four: lane l of the
// group has the packs l, l + kLanes, ... So a warp works on 32 / kLanes tokens at a time, and its
// loads and stores are contiguous. kIsPacked: a pack is read and written by one instruction.
//
// Choosing takes the same instructions for one lane as for many, so as few lanes as possible choose
// for a token: kPerToken, of up to 64 candidates each. A warp has 32 / kPerToken tokens in turn.
inline constexpr int kPack = 4;
inline constexpr int kWarp = static_cast<int>(kWarpThreads);
inline constexpr unsigned kGateThreads = 128;
inline constexpr int kGateWarps = static_cast<int>(kGateThreads) / kWarp;
template <int kPacks, int kLanes, int kPerToken, bool kIsPacked>
struct Layout {
  static constexpr int kPacksEach = kPacks;
  static constexpr int kGroup = kLanes;
  static constexpr int kChoosers = kPerToken;
  static constexpr bool kPacked = kIsPacked;
  static constexpr int kExpertsMax = kPack * kPacks * kLanes;
  static constexpr int kTokensPerBlock = static_cast<int>(kGateThreads) / kLanes;
  // Forward.
  static constexpr int kCandidates = kExpertsMax / kChoosers;
  static constexpr int kBundle = std::min(kCandidates, 8);
  static constexpr int kBundles = kCandidates / kBundle;
  static constexpr int kTokensPerWarp = kWarp / kChoosers;
  static constexpr int kTurns = kGroup / kChoosers;
  static constexpr int kTokensPerTurn = kWarp / kGroup;
};
template <typename T>
using Pack = Packed<T, kPack>;

// The lane's place in its group, and the first expert of the lane's pack `i`.
template <typename L>
__device__ int member() {
  return static_cast<int>(threadIdx.x) % L::kGroup;
}
template <typename L>
__device__ int first_expert(int i) {
  return (member<L>() + i * L::kGroup) * kPack;
}

// Reduces over the lanes of a group; every lane gets the result.
template <typename L, typename T, typename Combine>
__device__ T over_group(T value, Combine combine) {
  for (int distance = L::kGroup / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}
template <typename L>
__device__ float group_sum(float value) {
  return over_group<L>(value, [](float a, float b) { return a + b; });
}

// Loads experts first, first + 1, ... of an array [experts], with `beyond` for experts past the
// end.
template <typename L>
__device__ Pack<float> load_experts(const float* row, int first, int experts, float beyond) {
  Pack<float> pack;
  if constexpr (L::kPacked) {
    if (first < experts) return load_packed<kPack>(row + first);
    for (float& value : pack.values) value = beyond;
  } else {
#pragma unroll
    for (int r = 0; r < kPack; ++r) {
      pack.values[r] = first + r < experts ? row[first + r] : beyond;
    }
  }
  return pack;
}
template <typename L>
__device__ void store_experts(float* row, int first, int experts, const Pack<float>& pack) {
  if constexpr (L::kPacked) {
    if (first < experts) store_packed(row + first, pack);
  } else {
#pragma unroll
    for (int r = 0; r < kPack; ++r) {
      if (first + r < experts) row[first + r] = pack.values[r];
    }
  }
}

// Calls work(layout) with the smallest layout for this many experts. The unpacked case is not
// critical for speed: it has three layouts.
template <typename Work>
void with_layout(int64_t experts, bool packed, Work work) {
  static_assert(Layout<8, 32, 32, true>::kExpertsMax == kCudaGateExpertsMax);
  if (!packed && experts <= 16) return work(Layout<1, 4, 1, false>());
  if (!packed && experts <= 128) return work(Layout<4, 8, 2, false>());
  if (!packed) return work(Layout<8, 32, 16, false>());
  if (experts <= 4) return work(Layout<1, 1, 1, true>());
  if (experts <= 8) return work(Layout<1, 2, 1, true>());
  if (experts <= 16) return work(Layout<1, 4, 1, true>());
  if (experts <= 32) return work(Layout<1, 8, 1, true>());
  if (experts <= 64) return work(Layout<2, 8, 1, true>());
  if (experts <= 128) return work(Layout<4, 8, 2, true>());
  if (experts <= 256) return work(Layout<4, 16, 4, true>());
  if (experts <= 512) return work(Layout<4, 32, 8, true>());
  return work(Layout<8, 32, 32, true>());
}

}  // namespace ckpt::kernels::gate_lanes
