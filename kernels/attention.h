// Causal grouped-query attention, the plain ("eager") way: scores, softmax, weighted sum.
// Ainslie et al., arXiv:2305.13245: heads / kv_heads consecutive query heads share one key head.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

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

// On a GPU: q, k, v, out, their gradients and the probabilities are of type Real (float or Bf16).
// Scores, softmax and its gradient are fp32: a score is not small, and what bf16 would round off it
// (2^-9 of it) is an error of its probability. So that not all scores need exist at once, heads are
// dealt with in slabs of at most score_bytes_max, in the queue's scratch (backward with Bf16: half
// as much again, and fp32 gradients of the slab's keys), but of one key head's query heads at
// least.
//
// With Bf16 the heads of a slab go in one call of cuBLAS if seq_len and head_dim are multiples of 8
// and all arrays start at multiples of 16 bytes, else one by one.
inline constexpr int64_t kAttentionScoreBytesMax = int64_t{256} << 20;

template <typename Real>
void attention_forward(CudaQueue& queue, const AttentionShape& shape, const Real* q, const Real* k,
                       const Real* v, Real* probabilities, Real* out,
                       int64_t score_bytes_max = kAttentionScoreBytesMax);

template <typename Real>
struct CudaAttentionGradients {
  Real* q = nullptr;  // replaced; shaped like q
  Real* k = nullptr;  // replaced; the query heads of a key head add up in their order, in fp32
  Real* v = nullptr;  // replaced, likewise
};
template <typename Real>
void attention_backward(CudaQueue& queue, const AttentionShape& shape, const Real* dout,
                        const Real* q, const Real* k, const Real* v, const Real* probabilities,
                        const CudaAttentionGradients<Real>& gradients,
                        int64_t score_bytes_max = kAttentionScoreBytesMax);

}  // namespace ckpt::kernels
