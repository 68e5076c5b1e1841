#include <algorithm>
#include <bit>
#include <limits>

#include "formats/base/assert.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/gate_topk.h"

namespace ckpt::kernels {
namespace {

// A token's experts are dealt to a group of kLanes lanes of a warp in packs of four: lane l of the
// group has the packs l, l + kLanes, ... So a warp works on 32 / kLanes tokens at a time, and its
// loads and stores are contiguous. kIsPacked: a pack is read and written by one instruction.
constexpr int kPack = 4;
constexpr unsigned kGateThreads = 128;
template <int kPacks, int kLanes, bool kIsPacked>
struct Layout {
  static constexpr int kPacksEach = kPacks;
  static constexpr int kGroup = kLanes;
  static constexpr bool kPacked = kIsPacked;
  static constexpr int kExpertsMax = kPack * kPacks * kLanes;
  static constexpr int kTokensPerBlock = static_cast<int>(kGateThreads) / kLanes;
};
template <typename T>
using Pack = Packed<T, kPack>;

// How an expert ranks among the experts of its token: the bits of its probability, which order as
// the probability does, since none is negative. One NaN among the logits makes all probabilities
// NaN: such experts are equal, so the lower ones are chosen.
constexpr int kIsNan = -1;
constexpr int kIsChosen = -2;
constexpr int kIsNoExpert = -3;

// The lane's place in its group, and the first expert of the lane's pack `i`.
template <typename L>
__device__ int member() {
  return static_cast<int>(threadIdx.x) % L::kGroup;
}
template <typename L>
__device__ int first_expert(int i) {
  return (member<L>() + i * L::kGroup) * kPack;
}

// Reductions over the lanes of a group, the same in each of them.
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
template <typename L>
__device__ int group_max(int value) {
  if constexpr (L::kGroup == static_cast<int>(kWarpThreads)) {
    return __reduce_max_sync(~0u, value);
  } else {
    return over_group<L>(value, [](int a, int b) { return std::max(a, b); });
  }
}
template <typename L>
__device__ int group_min(int value) {
  if constexpr (L::kGroup == static_cast<int>(kWarpThreads)) {
    return __reduce_min_sync(~0u, value);
  } else {
    return over_group<L>(value, [](int a, int b) { return std::min(a, b); });
  }
}

__device__ int largest_of(const Pack<int>& pack) {
  int largest = pack.values[0];
  for (int r = 1; r < kPack; ++r) largest = std::max(largest, pack.values[r]);
  return largest;
}

// Experts first, first + 1, ... of an array [experts]; `beyond` in place of those that are not
// there.
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

// Logits become probabilities.
template <typename L>
__device__ void softmax(Pack<float> (&packs)[L::kPacksEach]) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma unroll
  for (const Pack<float>& pack : packs) {
#pragma unroll
    for (int r = 0; r < kPack; ++r) largest = fmaxf(largest, pack.values[r]);
  }
  largest = over_group<L>(largest, [](float a, float b) { return fmaxf(a, b); });
  float total = 0;
#pragma unroll
  for (Pack<float>& pack : packs) {
#pragma unroll
    for (int r = 0; r < kPack; ++r) total += pack.values[r] = expf(pack.values[r] - largest);
  }
  const float inverse = 1.0f / group_sum<L>(total);
#pragma unroll
  for (Pack<float>& pack : packs) {
#pragma unroll
    for (int r = 0; r < kPack; ++r) pack.values[r] *= inverse;
  }
}

__device__ Pack<int> ranks_of(const Pack<float>& probabilities, int first, int experts) {
  Pack<int> ranks;
#pragma unroll
  for (int r = 0; r < kPack; ++r) {
    const float p = probabilities.values[r];
    const int rank = p == p ? std::bit_cast<int>(p) : kIsNan;
    ranks.values[r] = first + r < experts ? rank : kIsNoExpert;
  }
  return ranks;
}

struct Choice {
  int expert;
  float probability;
};

// A group's experts by rank, best first. Each lane keeps the ranks of its own packs in shared
// memory, where the pack to look into may depend on the lane, and the best of each in a register.
template <typename L>
class Ranking {
 public:
  using Memory = Pack<int>[L::kPacksEach][kGateThreads];

  __device__ explicit Ranking(Memory& memory) : memory_(memory) {}
  __device__ void put(int i, const Pack<int>& ranks) {
    memory_[i][threadIdx.x] = ranks;
    best_[i] = largest_of(ranks);
  }
  // The next one; of equal experts the lower one. All lanes of the warp call it.
  __device__ Choice next() {
    int mine = best_[0];
#pragma unroll
    for (int i = 1; i < L::kPacksEach; ++i) mine = std::max(mine, best_[i]);
    const int best = group_max<L>(mine);
    int i_best = 0;
#pragma unroll
    for (int i = L::kPacksEach - 1; i >= 0; --i) {
      if (best_[i] == best) i_best = i;
    }
    Pack<int> ranks = memory_[i_best][threadIdx.x];
    int r_best = 0;
#pragma unroll
    for (int r = kPack - 1; r >= 0; --r) {
      if (ranks.values[r] == best) r_best = r;
    }
    const int expert = first_expert<L>(i_best) + r_best;
    const int chosen = group_min<L>(mine == best ? expert : std::numeric_limits<int>::max());
    if (chosen == expert) {
#pragma unroll
      for (int r = 0; r < kPack; ++r) {
        if (r == r_best) ranks.values[r] = kIsChosen;
      }
      memory_[i_best][threadIdx.x].values[r_best] = kIsChosen;
      const int rest = largest_of(ranks);
#pragma unroll
      for (int i = 0; i < L::kPacksEach; ++i) {
        if (i == i_best) best_[i] = rest;
      }
    }
    return {chosen,
            best < 0 ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(best)};
  }

 private:
  Memory& memory_;
  int best_[L::kPacksEach];
};

template <typename L>
__global__ void __launch_bounds__(kGateThreads)
    forward_kernel(GateShape shape, const float* logits, float* probabilities, int32_t* choice,
                   float* weight) {
  constexpr int kChoicesMax = std::min(L::kExpertsMax, static_cast<int>(kCudaGateTopKMax));
  constexpr int kChoicesEach = (kChoicesMax + L::kGroup - 1) / L::kGroup;
  __shared__ typename Ranking<L>::Memory ranks;
  __shared__ Choice kept[kChoicesEach][kGateThreads];  // choice k in lane k % kGroup of its group
  const int top_k = static_cast<int>(shape.top_k);
  for (int64_t first = int64_t{blockIdx.x} * L::kTokensPerBlock; first < shape.tokens;
       first += int64_t{gridDim.x} * L::kTokensPerBlock) {
    const int64_t token = first + threadIdx.x / L::kGroup;
    // Groups beyond the last token go along: shuffles need whole warps.
    const bool is_token = token < shape.tokens;
    const int experts = is_token ? static_cast<int>(shape.experts) : 0;
    Pack<float> p[L::kPacksEach];
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      p[i] = load_experts<L>(logits + token * shape.experts, first_expert<L>(i), experts,
                             -std::numeric_limits<float>::infinity());
    }
    softmax<L>(p);
    Ranking<L> ranking(ranks);
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      const int expert = first_expert<L>(i);
      store_experts<L>(probabilities + token * shape.experts, expert, experts, p[i]);
      ranking.put(i, ranks_of(p[i], expert, experts));
    }
    float total = 0;
    for (int k = 0; k < top_k; ++k) {
      const Choice next = ranking.next();
      total += next.probability;
      if (k % L::kGroup == member<L>()) kept[k / L::kGroup][threadIdx.x] = next;
    }
    for (int k = member<L>(); is_token && k < top_k; k += L::kGroup) {
      const Choice mine = kept[k / L::kGroup][threadIdx.x];
      choice[token * top_k + k] = mine.expert;
      weight[token * top_k + k] = mine.probability / total;
    }
  }
}

// The sum of a token's chosen probabilities, and the mean of its weights' gradients by weight.
struct ChoiceSums {
  float total;
  float mean;
};
template <typename L>
__device__ ChoiceSums sums_of_choices(int top_k, const float* p, const int32_t* choice,
                                      const float* weight, const float* dweight) {
  ChoiceSums sums{0, 0};
  for (int k = member<L>(); k < top_k; k += L::kGroup) {
    sums.total += p[choice[k]];
    sums.mean += dweight[k] * weight[k];
  }
  return {group_sum<L>(sums.total), group_sum<L>(sums.mean)};
}

// w_k = p_k / total, so dp_k = (dw_k - sum_j dw_j w_j) / total; then through the softmax. The
// gradients of the few chosen probabilities are dealt out by way of shared memory.
template <typename L>
__global__ void __launch_bounds__(kGateThreads)
    backward_kernel(GateShape shape, const float* dweight, const float* dprobability,
                    const float* probabilities, const int32_t* choice, const float* weight,
                    float* dlogits) {
  alignas(kPackBytes) __shared__ float chosen[L::kTokensPerBlock][L::kExpertsMax];
  const int top_k = static_cast<int>(shape.top_k);
  float* const by_expert = chosen[threadIdx.x / L::kGroup];
  for (int64_t first = int64_t{blockIdx.x} * L::kTokensPerBlock; first < shape.tokens;
       first += int64_t{gridDim.x} * L::kTokensPerBlock) {
    const int64_t token = first + threadIdx.x / L::kGroup;
    const bool is_token = token < shape.tokens;
    const int experts = is_token ? static_cast<int>(shape.experts) : 0;
    const int choices = is_token ? top_k : 0;
    const float* const row = probabilities + token * shape.experts;
    const int32_t* const of_choice = choice + token * top_k;
    const float* const dw = dweight + token * top_k;
    Pack<float> p[L::kPacksEach];
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      p[i] = load_experts<L>(row, first_expert<L>(i), experts, 0.0f);
      *reinterpret_cast<Pack<float>*>(by_expert + first_expert<L>(i)) = {};
    }
    const ChoiceSums sums = sums_of_choices<L>(choices, row, of_choice, weight + token * top_k, dw);
    __syncwarp();
    for (int k = member<L>(); k < choices; k += L::kGroup) {
      by_expert[of_choice[k]] = (dw[k] - sums.mean) / sums.total;
    }
    __syncwarp();
    Pack<float> d[L::kPacksEach];
    float dp_mean = 0;
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      const auto chosen_share = load_packed<kPack>(by_expert + first_expert<L>(i));
      d[i] = load_experts<L>(dprobability, first_expert<L>(i), experts, 0.0f);
#pragma unroll
      for (int r = 0; r < kPack; ++r) {
        d[i].values[r] += chosen_share.values[r];
        dp_mean += d[i].values[r] * p[i].values[r];
      }
    }
    dp_mean = group_sum<L>(dp_mean);
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
#pragma unroll
      for (int r = 0; r < kPack; ++r) {
        d[i].values[r] = p[i].values[r] * (d[i].values[r] - dp_mean);
      }
      store_experts<L>(dlogits + token * shape.experts, first_expert<L>(i), experts, d[i]);
    }
  }
}

// Calls work(layout) with the smallest group that holds so many experts. Without packs speed
// matters less: one of three.
template <typename Work>
void with_layout(int64_t experts, bool packed, Work work) {
  static_assert(Layout<8, 32, true>::kExpertsMax == kCudaGateExpertsMax);
  if (!packed && experts <= 16) return work(Layout<1, 4, false>());
  if (!packed && experts <= 128) return work(Layout<4, 8, false>());
  if (!packed) return work(Layout<8, 32, false>());
  if (experts <= 4) return work(Layout<1, 1, true>());
  if (experts <= 8) return work(Layout<1, 2, true>());
  if (experts <= 16) return work(Layout<1, 4, true>());
  if (experts <= 32) return work(Layout<4, 2, true>());
  if (experts <= 64) return work(Layout<4, 4, true>());
  if (experts <= 128) return work(Layout<4, 8, true>());
  if (experts <= 256) return work(Layout<4, 16, true>());
  if (experts <= 512) return work(Layout<4, 32, true>());
  return work(Layout<8, 32, true>());
}

}  // namespace

void gate_topk_forward(CudaQueue& queue, const GateShape& shape, const float* logits,
                       float* probabilities, int32_t* choice, float* weight) {
  CKPT_ASSERT(shape.experts <= kCudaGateExpertsMax && shape.top_k <= kCudaGateTopKMax);
  const bool packed = packable(shape.experts, kPack, logits, probabilities);
  with_layout(shape.experts, packed, [&]<typename L>(L) {
    launch(queue, "gate", blocks_for(shape.tokens, L::kTokensPerBlock), kGateThreads,
           forward_kernel<L>, shape, logits, probabilities, choice, weight);
  });
}

void gate_topk_backward(CudaQueue& queue, const GateShape& shape, const float* dweight,
                        const float* dprobability, const float* probabilities,
                        const int32_t* choice, const float* weight, float* dlogits) {
  CKPT_ASSERT(shape.experts <= kCudaGateExpertsMax);
  const bool packed = packable(shape.experts, kPack, dprobability, probabilities, dlogits);
  with_layout(shape.experts, packed, [&]<typename L>(L) {
    launch(queue, "gate backward", blocks_for(shape.tokens, L::kTokensPerBlock), kGateThreads,
           backward_kernel<L>, shape, dweight, dprobability, probabilities, choice, weight,
           dlogits);
  });
}

}  // namespace ckpt::kernels
