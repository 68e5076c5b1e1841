// Causal grouped-query attention, the plain ("eager") way: scores, softmax, weighted sum.
// Ainslie et al., arXiv:2305.13245: heads / kv_heads consecutive query heads share one key head.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

struct AttentionShape {
  int64_t sequences = 0;
  int64_t seq_len = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;

  int64_t tokens() const { return sequences * seq_len; }
  int64_t probability_count() const { return sequences * heads * seq_len * seq_len; }
};

// q, out: [sequences, seq_len, heads, head_dim]; k, v: the same with kv_heads.
// probabilities: [sequences, heads, seq_len, seq_len], kept for backward; zero where a token would
// look ahead. Scores are scaled by 1/sqrt(head_dim); softmax in fp32.
void attention_forward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                       float* probabilities, float* out);

struct AttentionGradients {
  float* q = nullptr;        // replaced; shaped like q
  float* k = nullptr;        // replaced
  float* v = nullptr;        // replaced
  float* scratch = nullptr;  // [seq_len, seq_len], any content
};

void attention_backward(const AttentionShape& shape, const float* dout, const float* q,
                        const float* k, const float* v, const float* probabilities,
                        const AttentionGradients& gradients);

}  // namespace ckpt::kernels
