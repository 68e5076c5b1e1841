#include <algorithm>
#include <cmath>

#include "kernels/gate_topk.h"
#include "kernels/lanes.h"

namespace ckpt::kernels {
namespace {

bool chosen_before(const int32_t* choice, int64_t count, int64_t expert) {
  return std::find(choice, choice + count, static_cast<int32_t>(expert)) != choice + count;
}

// The k-th choice: the most probable expert that is not among the first `count`.
int32_t next_choice(int64_t experts, const float* p, const int32_t* choice, int64_t count) {
  int64_t best = -1;
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (chosen_before(choice, count, expert)) continue;
    if (best < 0 || p[expert] > p[best]) best = expert;
  }
  return static_cast<int32_t>(best);
}

}  // namespace

void gate_topk_forward(const GateShape& shape, const float* logits, float* probabilities,
                       int32_t* choice, float* weight) {
  for (int64_t token = 0; token < shape.tokens; ++token) {
    const float* in = logits + token * shape.experts;
    float* p = probabilities + token * shape.experts;
    const float largest = *std::max_element(in, in + shape.experts);
    for (int64_t e = 0; e < shape.experts; ++e) p[e] = std::exp(in[e] - largest);
    const float inverse = 1.0f / sum(p, shape.experts);
    for (int64_t e = 0; e < shape.experts; ++e) p[e] *= inverse;

    int32_t* token_choice = choice + token * shape.top_k;
    float* token_weight = weight + token * shape.top_k;
    float total = 0;
    for (int64_t k = 0; k < shape.top_k; ++k) {
      token_choice[k] = next_choice(shape.experts, p, token_choice, k);
      token_weight[k] = p[token_choice[k]];
      total += token_weight[k];
    }
    for (int64_t k = 0; k < shape.top_k; ++k) token_weight[k] /= total;
  }
}

void gate_topk_backward(const GateShape& shape, const float* dweight, const float* dprobability,
                        const float* probabilities, const int32_t* choice, const float* weight,
                        float* dlogits) {
  for (int64_t token = 0; token < shape.tokens; ++token) {
    const float* p = probabilities + token * shape.experts;
    const int32_t* token_choice = choice + token * shape.top_k;
    const float* w = weight + token * shape.top_k;
    const float* dw = dweight + token * shape.top_k;
    float* d = dlogits + token * shape.experts;

    // w_k = p_k / total, so dp_k = (dw_k - sum_j dw_j w_j) / total.
    float total = 0;
    float mean = 0;
    for (int64_t k = 0; k < shape.top_k; ++k) {
      total += p[token_choice[k]];
      mean += dw[k] * w[k];
    }
    std::copy(dprobability, dprobability + shape.experts, d);
    for (int64_t k = 0; k < shape.top_k; ++k) d[token_choice[k]] += (dw[k] - mean) / total;

    const float softmax_mean = dot(d, p, shape.experts);
    for (int64_t e = 0; e < shape.experts; ++e) d[e] = p[e] * (d[e] - softmax_mean);
  }
}

}  // namespace ckpt::kernels
