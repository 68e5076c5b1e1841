#include <algorithm>
#include <bit>
#include <limits>

#include "formats/base/assert.h"
#include "kernels/cuda/gate_lanes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/gate_topk.h"

namespace ckpt::kernels {
namespace {

using namespace gate_lanes;

// Rank of an expert among the experts of its token: the bits of its probability. They order as the
// probabilities do, since none is negative. One NaN among the logits makes all probabilities NaN:
// such experts are equal, so the lower ones are chosen. A chosen expert keeps its probability with
// the sign bit set, so it ranks below all others.
constexpr int kNanRank = 0x7fc00000;
constexpr int kIsNoExpert = -1;
constexpr int kChosenBit = std::numeric_limits<int>::min();

__device__ float probability_of(int rank) { return fabsf(std::bit_cast<float>(rank)); }

template <int kCount>
__device__ int largest_of(const Packed<int, kCount>& values) {
  int largest = values.values[0];
#pragma unroll
  for (int r = 1; r < kCount; ++r) largest = std::max(largest, values.values[r]);
  return largest;
}
template <int kCount>
__device__ int first_equal(const Packed<int, kCount>& values, int value) {
  int place = 0;
#pragma unroll
  for (int r = kCount - 1; r >= 0; --r) {
    if (values.values[r] == value) place = r;
  }
  return place;
}

// Logits become probabilities. True if they are NaN.
template <typename L>
__device__ bool softmax(Pack<float> (&packs)[L::kPacksEach]) {
  // Loops over an index: nvcc would keep the packs in local memory for loops over references.
  float largest = -std::numeric_limits<float>::infinity();
#pragma unroll
  for (int i = 0; i < L::kPacksEach; ++i) {
#pragma unroll
    for (int r = 0; r < kPack; ++r) largest = fmaxf(largest, packs[i].values[r]);
  }
  largest = over_group<L>(largest, [](float a, float b) { return fmaxf(a, b); });
  float total = 0;
#pragma unroll
  for (int i = 0; i < L::kPacksEach; ++i) {
#pragma unroll
    for (int r = 0; r < kPack; ++r) {
      total += packs[i].values[r] = expf(packs[i].values[r] - largest);
    }
  }
  const float inverse = 1.0f / group_sum<L>(total);
#pragma unroll
  for (int i = 0; i < L::kPacksEach; ++i) {
#pragma unroll
    for (int r = 0; r < kPack; ++r) packs[i].values[r] *= inverse;
  }
  return inverse != inverse;
}

// A warp's shared memory: for every lane the ranks of its candidates and the best of
// each bundle of eight, and the choices of all tokens, as `choice` has them. Lanes begin 12 words
// after a multiple of 32: reads of 16 bytes by eight lanes hit all banks.
template <typename L>
struct WarpMemory {
  static constexpr int kChoicesMax = std::min(L::kExpertsMax, static_cast<int>(kCudaGateTopKMax));

  struct alignas(kPackBytes) Lane {
    int rank[L::kCandidates];
    int best[8];
    int unused[4];
  };
  Lane lane[kWarp];
  uint16_t choice[L::kTokensPerWarp * kChoicesMax];

  // `token`: index among the warp's tokens.
  __device__ int* rank(int token, int expert) {
    return lane[token * L::kChoosers + expert / L::kCandidates].rank + expert % L::kCandidates;
  }
};

struct Choice {
  int expert;
  float probability;
};

// The best of a token's candidates, lane by lane, and over the lanes that choose for it.
template <typename L>
class Ranking {
 public:
  using Bundle = Packed<int, L::kBundle>;

  // Precondition: the lane's ranks are written.
  __device__ explicit Ranking(typename WarpMemory<L>::Lane& memory) : memory_(memory) {
#pragma unroll
    for (int i = 0; i < L::kBundles; ++i) {
      memory_.best[i] = largest_of(load_packed<L::kBundle>(memory_.rank + i * L::kBundle));
    }
  }
  // The next best expert; of equal experts the lower one. All lanes of the warp call it.
  __device__ Choice next() {
    const auto bests = load_packed<L::kBundles>(memory_.best);
    const int mine = largest_of(bests);
    const int i = first_equal(bests, mine);
    Bundle ranks = load_packed<L::kBundle>(memory_.rank + i * L::kBundle);
    const int r = first_equal(ranks, mine);
    const int of_lane = static_cast<int>(threadIdx.x) % L::kChoosers * L::kCandidates;
    const int expert = of_lane + i * L::kBundle + r;
    const int best = over_choosers(mine, [](int a, int b) { return std::max(a, b); });
    const int chosen = over_choosers(mine == best ? expert : std::numeric_limits<int>::max(),
                                     [](int a, int b) { return std::min(a, b); });
    if (chosen == expert) {
      memory_.rank[i * L::kBundle + r] = best | kChosenBit;
#pragma unroll
      for (int other = 0; other < L::kBundle; ++other) {
        if (other == r) ranks.values[other] = kIsNoExpert;
      }
      memory_.best[i] = largest_of(ranks);
    }
    return {chosen, probability_of(best)};
  }

 private:
  template <typename Combine>
  static __device__ int over_choosers(int value, Combine combine) {
    for (int distance = L::kChoosers / 2; distance > 0; distance /= 2) {
      value = combine(value, __shfl_xor_sync(~0u, value, distance));
    }
    return value;
  }

  typename WarpMemory<L>::Lane& memory_;
};

// Probabilities of the warp's tokens, `first` and after, and their ranks into `memory`.
template <typename L>
__device__ void rank_experts(const GateShape& shape, int64_t first, const float* logits,
                             float* probabilities, WarpMemory<L>& memory) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Pack<float> p[L::kTurns][L::kPacksEach];
  // Lanes of missing tokens take part, without experts: shuffles need whole warps.
  const auto experts_of = [&](int token) {
    return first + token < shape.tokens ? static_cast<int>(shape.experts) : 0;
  };
#pragma unroll
  for (int turn = 0; turn < L::kTurns; ++turn) {
    const int token = turn * L::kTokensPerTurn + lane / L::kGroup;
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      p[turn][i] = load_experts<L>(logits + (first + token) * shape.experts, first_expert<L>(i),
                                   experts_of(token), -std::numeric_limits<float>::infinity());
    }
  }
#pragma unroll
  for (int turn = 0; turn < L::kTurns; ++turn) {
    const int token = turn * L::kTokensPerTurn + lane / L::kGroup;
    const int experts = experts_of(token);
    const bool is_nan = softmax<L>(p[turn]);
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      const int expert = first_expert<L>(i);
      store_experts<L>(probabilities + (first + token) * shape.experts, expert, experts,
                       p[turn][i]);
      Pack<int> ranks;
#pragma unroll
      for (int r = 0; r < kPack; ++r) {
        const int rank = is_nan ? kNanRank : std::bit_cast<int>(p[turn][i].values[r]);
        const bool is_expert = L::kPacked ? expert < experts : expert + r < experts;
        ranks.values[r] = is_expert ? rank : kIsNoExpert;
      }
      *reinterpret_cast<Pack<int>*>(memory.rank(token, expert)) = ranks;
    }
  }
}

template <typename L>
__global__ void __launch_bounds__(kGateThreads)
    forward_kernel(GateShape shape, const float* logits, float* probabilities, int32_t* choice,
                   float* weight) {
  __shared__ WarpMemory<L> memories[kGateWarps];
  WarpMemory<L>& memory = memories[threadIdx.x / kWarpThreads];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int top_k = static_cast<int>(shape.top_k);
  const int reciprocal = (65535 + top_k) / top_k;  // i * reciprocal >> 16 is i / top_k, i < 2048
  const int64_t warp = int64_t{blockIdx.x} * kGateWarps + threadIdx.x / kWarpThreads;
  for (int64_t first = warp * L::kTokensPerWarp; first < shape.tokens;
       first += int64_t{gridDim.x} * kGateWarps * L::kTokensPerWarp) {
    rank_experts<L>(shape, first, logits, probabilities, memory);
    __syncwarp();
    Ranking<L> ranking(memory.lane[lane]);
    float total = 0;
    for (int k = 0; k < top_k; ++k) {
      const Choice next = ranking.next();
      total += next.probability;
      if (lane % L::kChoosers == 0) {
        memory.choice[lane / L::kChoosers * top_k + k] = static_cast<uint16_t>(next.expert);
      }
    }
    __syncwarp();
    const auto tokens =
        static_cast<int>(std::min<int64_t>(L::kTokensPerWarp, shape.tokens - first));
    for (int begin = 0; begin < tokens * top_k; begin += kWarp) {
      const int i = begin + lane;
      const int token = i * reciprocal >> 16;
      const float total_of_token = __shfl_sync(~0u, total, token * L::kChoosers % kWarp);
      if (i < tokens * top_k) {
        const int expert = memory.choice[i];
        choice[first * top_k + i] = expert;
        weight[first * top_k + i] = probability_of(*memory.rank(token, expert)) / total_of_token;
      }
    }
    __syncwarp();
  }
}

// The gradient of an expert's weight in shared memory if the expert is not chosen: the bits of a
// signalling NaN, which no operation returns.
constexpr unsigned kNotChosen = 0xffa00001;

// w_k = p_k / total, so dp_k = (dw_k - sum_j dw_j w_j) / total; then through the softmax. There the
// weights' part has no mean: sum_k p_k dp_k = 0. The gradients of the few weights reach the lanes
// of their experts through shared memory; the rest is in registers.
template <typename L>
__global__ void __launch_bounds__(kGateThreads)
    backward_kernel(GateShape shape, const float* dweight, const float* dprobability,
                    const float* probabilities, const int32_t* choice, float* dlogits) {
  alignas(kPackBytes) __shared__ unsigned dealt[L::kTokensPerBlock][L::kExpertsMax];
  const int top_k = static_cast<int>(shape.top_k);
  unsigned* const by_expert = dealt[threadIdx.x / L::kGroup];
  for (int64_t first = int64_t{blockIdx.x} * L::kTokensPerBlock; first < shape.tokens;
       first += int64_t{gridDim.x} * L::kTokensPerBlock) {
    const int64_t token = first + threadIdx.x / L::kGroup;
    const bool is_token = token < shape.tokens;
    const int experts = is_token ? static_cast<int>(shape.experts) : 0;
    const int choices = is_token ? top_k : 0;
    Pack<float> p[L::kPacksEach];
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      p[i] =
          load_experts<L>(probabilities + token * shape.experts, first_expert<L>(i), experts, 0.0f);
      *reinterpret_cast<Pack<unsigned>*>(by_expert + first_expert<L>(i)) = {kNotChosen, kNotChosen,
                                                                            kNotChosen, kNotChosen};
    }
    __syncwarp();
#pragma unroll 2
    for (int k = member<L>(); k < choices; k += L::kGroup) {
      by_expert[choice[token * top_k + k]] = std::bit_cast<unsigned>(dweight[token * top_k + k]);
    }
    __syncwarp();
    Pack<float> d[L::kPacksEach];
    float total = 0;    // of the chosen probabilities
    float dw_sum = 0;   // dw_k p_k
    float dp_mean = 0;  // over all experts
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      const auto dw = load_packed<kPack>(by_expert + first_expert<L>(i));
      d[i] = load_experts<L>(dprobability, first_expert<L>(i), experts, 0.0f);
#pragma unroll
      for (int r = 0; r < kPack; ++r) {
        dp_mean += d[i].values[r] * p[i].values[r];
        if (dw.values[r] != kNotChosen) {
          total += p[i].values[r];
          dw_sum += std::bit_cast<float>(dw.values[r]) * p[i].values[r];
        }
      }
    }
    total = group_sum<L>(total);
    const float mean = group_sum<L>(dw_sum) / total;
    dp_mean = group_sum<L>(dp_mean);
    const float inverse = 1.0f / total;
#pragma unroll
    for (int i = 0; i < L::kPacksEach; ++i) {
      const auto dw = load_packed<kPack>(by_expert + first_expert<L>(i));
#pragma unroll
      for (int r = 0; r < kPack; ++r) {
        float dp = d[i].values[r] - dp_mean;
        if (dw.values[r] != kNotChosen) {
          dp += (std::bit_cast<float>(dw.values[r]) - mean) * inverse;
        }
        d[i].values[r] = p[i].values[r] * dp;
      }
      store_experts<L>(dlogits + token * shape.experts, first_expert<L>(i), experts, d[i]);
    }
    __syncwarp();  // the group's lanes have read the values that the next token overwrites
  }
}

}  // namespace

void gate_topk_forward(CudaQueue& queue, const GateShape& shape, const float* logits,
                       float* probabilities, int32_t* choice, float* weight) {
  CKPT_ASSERT(shape.experts <= kCudaGateExpertsMax && shape.top_k <= kCudaGateTopKMax);
  const bool packed = packable(shape.experts, kPack, logits, probabilities);
  with_layout(shape.experts, packed, [&]<typename L>(L) {
    launch(queue, "gate", blocks_for(shape.tokens, kGateWarps * L::kTokensPerWarp), kGateThreads,
           forward_kernel<L>, shape, logits, probabilities, choice, weight);
  });
}

void gate_topk_backward(CudaQueue& queue, const GateShape& shape, const float* dweight,
                        const float* dprobability, const float* probabilities,
                        const int32_t* choice, const float* /*weight*/, float* dlogits) {
  CKPT_ASSERT(shape.experts <= kCudaGateExpertsMax);
  const bool packed = packable(shape.experts, kPack, dprobability, probabilities, dlogits);
  with_layout(shape.experts, packed, [&]<typename L>(L) {
    launch(queue, "gate backward", blocks_for(shape.tokens, L::kTokensPerBlock), kGateThreads,
           backward_kernel<L>, shape, dweight, dprobability, probabilities, choice, dlogits);
  });
}

}  // namespace ckpt::kernels
