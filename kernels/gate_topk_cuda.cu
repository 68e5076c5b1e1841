#include <limits>

#include "formats/base/assert.h"
#include "kernels/cuda/launch.h"
#include "kernels/gate_topk.h"

namespace ckpt::kernels {
namespace {

constexpr unsigned kTokensPerBlock = kBlockThreads / kWarpThreads;

// How an expert ranks among those of its token, beside its probability (0 .. 1). One NaN among the
// logits makes all probabilities NaN: such experts are equal, so the lower ones are chosen.
constexpr float kIsNan = -1.0f;
constexpr float kIsChosen = -2.0f;
constexpr float kIsNoExpert = -3.0f;

struct Candidate {
  float rank;
  int expert;
};

// The best of the warp's candidates, the same in every lane; of equal ones the lower expert.
__device__ Candidate best_of_warp(Candidate best) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const Candidate other{__shfl_xor_sync(~0u, best.rank, distance),
                          __shfl_xor_sync(~0u, best.expert, distance)};
    const bool before = other.rank == best.rank && other.expert < best.expert;
    if (other.rank > best.rank || before) best = other;
  }
  return best;
}

__device__ int64_t first_token() {
  return int64_t{blockIdx.x} * kTokensPerBlock + threadIdx.x / kWarpThreads;
}

// A warp per token; lane l holds experts l, l + 32, ...
template <int kPerLane>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(GateShape shape, const float* logits, float* probabilities, int32_t* choice,
                   float* weight) {
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  const int experts = static_cast<int>(shape.experts);
  const int top_k = static_cast<int>(shape.top_k);
  for (int64_t token = first_token(); token < shape.tokens;
       token += int64_t{gridDim.x} * kTokensPerBlock) {
    const float* in = logits + token * shape.experts;
    float* out = probabilities + token * shape.experts;

    float held[kPerLane];  // logits, then probabilities, then ranks
    float largest = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < kPerLane; ++j) {
      const int expert = lane + j * static_cast<int>(kWarpThreads);
      held[j] = expert < experts ? in[expert] : -std::numeric_limits<float>::infinity();
      largest = fmaxf(largest, held[j]);
    }
    largest = warp_max(largest);
    float total = 0;
    for (int j = 0; j < kPerLane; ++j) {
      const int expert = lane + j * static_cast<int>(kWarpThreads);
      held[j] = expert < experts ? expf(held[j] - largest) : 0.0f;
      total += held[j];
    }
    const float inverse = 1.0f / warp_sum(total);
    for (int j = 0; j < kPerLane; ++j) {
      const int expert = lane + j * static_cast<int>(kWarpThreads);
      const float p = held[j] * inverse;
      if (expert < experts) out[expert] = p;
      held[j] = expert >= experts ? kIsNoExpert : p == p ? p : kIsNan;
    }

    // Lane k keeps the k-th choice.
    float chosen_total = 0;
    float my_weight = 0;
    int my_choice = 0;
    for (int k = 0; k < top_k; ++k) {
      Candidate best{held[0], lane};
      for (int j = 1; j < kPerLane; ++j) {
        if (held[j] > best.rank) best = {held[j], lane + j * static_cast<int>(kWarpThreads)};
      }
      best = best_of_warp(best);
      for (int j = 0; j < kPerLane; ++j) {
        if (lane + j * static_cast<int>(kWarpThreads) == best.expert) held[j] = kIsChosen;
      }
      const float p = best.rank < 0 ? std::numeric_limits<float>::quiet_NaN() : best.rank;
      chosen_total += p;
      if (lane == k) {
        my_weight = p;
        my_choice = best.expert;
      }
    }
    if (lane < top_k) {
      choice[token * top_k + lane] = my_choice;
      weight[token * top_k + lane] = my_weight / chosen_total;
    }
  }
}

// The gradient that one expert's probability of one token gets: that of the auxiliary loss, and of
// the token's weights if it was chosen.
__device__ float probability_gradient(int top_k, const int32_t* choice, const float* dweight,
                                      float mean, float total, int expert, float auxiliary) {
  for (int k = 0; k < top_k; ++k) {
    if (choice[k] == expert) return auxiliary + (dweight[k] - mean) / total;
  }
  return auxiliary;
}

// w_k = p_k / total, so dp_k = (dw_k - sum_j dw_j w_j) / total; then through the softmax.
__global__ void __launch_bounds__(kBlockThreads)
    backward_kernel(GateShape shape, const float* dweight, const float* dprobability,
                    const float* probabilities, const int32_t* choice, const float* weight,
                    float* dlogits) {
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  const int experts = static_cast<int>(shape.experts);
  const int top_k = static_cast<int>(shape.top_k);
  for (int64_t token = first_token(); token < shape.tokens;
       token += int64_t{gridDim.x} * kTokensPerBlock) {
    const float* p = probabilities + token * shape.experts;
    float* d = dlogits + token * shape.experts;
    const int32_t* token_choice = choice + token * top_k;
    const float* dw = dweight + token * top_k;

    float total = 0;
    float mean = 0;
    for (int k = 0; k < top_k; ++k) {
      total += p[token_choice[k]];
      mean += dw[k] * weight[token * top_k + k];
    }
    float dp_mean = 0;
    for (int e = lane; e < experts; e += static_cast<int>(kWarpThreads)) {
      d[e] = probability_gradient(top_k, token_choice, dw, mean, total, e, dprobability[e]);
      dp_mean += d[e] * p[e];
    }
    dp_mean = warp_sum(dp_mean);
    for (int e = lane; e < experts; e += static_cast<int>(kWarpThreads)) {
      d[e] = p[e] * (d[e] - dp_mean);
    }
  }
}

}  // namespace

void gate_topk_forward(CudaQueue& queue, const GateShape& shape, const float* logits,
                       float* probabilities, int32_t* choice, float* weight) {
  static_assert(kCudaGateTopKMax <= int64_t{kWarpThreads});
  CKPT_ASSERT(shape.experts <= kCudaGateExpertsMax && shape.top_k <= kCudaGateTopKMax);
  const auto kernel = shape.experts <= 32    ? forward_kernel<1>
                      : shape.experts <= 64  ? forward_kernel<2>
                      : shape.experts <= 128 ? forward_kernel<4>
                      : shape.experts <= 256 ? forward_kernel<8>
                                             : forward_kernel<kCudaGateExpertsMax / kWarpThreads>;
  launch(queue, "gate", blocks_for(shape.tokens, kTokensPerBlock), kBlockThreads, kernel, shape,
         logits, probabilities, choice, weight);
}

void gate_topk_backward(CudaQueue& queue, const GateShape& shape, const float* dweight,
                        const float* dprobability, const float* probabilities,
                        const int32_t* choice, const float* weight, float* dlogits) {
  launch(queue, "gate backward", blocks_for(shape.tokens, kTokensPerBlock), kBlockThreads,
         backward_kernel, shape, dweight, dprobability, probabilities, choice, weight, dlogits);
}

}  // namespace ckpt::kernels
