// Mixtral's router after its linear layer: softmax over all experts, the k most probable, their
// probabilities renormalised to sum to one. Jiang et al., arXiv:2401.04088.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

struct GateShape {
  int64_t tokens = 0;
  int64_t experts = 0;
  int64_t top_k = 0;  // 1 .. experts
};

// logits, probabilities: [tokens, experts] (may be the same memory). choice, weight:
// [tokens, top_k], most probable first; of equal probabilities the lower expert comes first.
// Choices of one token are distinct and in range even where logits are NaN.
void gate_topk_forward(const GateShape& shape, const float* logits, float* probabilities,
                       int32_t* choice, float* weight);

// dlogits [tokens, experts], replaced. dweight: [tokens, top_k]. dprobability: [experts], an
// additional gradient of every token's probabilities (the auxiliary loss). No gradient flows
// through the choice itself.
void gate_topk_backward(const GateShape& shape, const float* dweight, const float* dprobability,
                        const float* probabilities, const int32_t* choice, const float* weight,
                        float* dlogits);

// On a GPU: the same, all in fp32, up to these bounds: a warp holds its tokens' experts in
// registers, and their choices in shared memory. One NaN among a token's logits makes all its
// probabilities and weights NaN; it then chooses the first top_k experts.
inline constexpr int64_t kCudaGateExpertsMax = 1024;
inline constexpr int64_t kCudaGateTopKMax = 32;
void gate_topk_forward(CudaQueue& queue, const GateShape& shape, const float* logits,
                       float* probabilities, int32_t* choice, float* weight);
void gate_topk_backward(CudaQueue& queue, const GateShape& shape, const float* dweight,
                        const float* dprobability, const float* probabilities,
                        const int32_t* choice, const float* weight, float* dlogits);

}  // namespace ckpt::kernels
