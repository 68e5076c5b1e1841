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

// On a GPU: q, k, v, out, their gradients and the probabilities have type Real (float or Bf16).
// Scores, softmax and its gradient are fp32: bf16 would round a score by 2^-9 of its value, and
// that error would reach its probability.
//
// Heads are processed in slabs, so that not all scores exist at once. A slab's scores take at most
// score_bytes_max of the queue's scratch, but a slab has at least the query heads of one key head.
// Backward with Bf16 needs half as much again, and fp32 gradients of the slab's keys.
//
// With Bf16, one call of cuBLAS handles all heads of a slab if seq_len and head_dim are multiples
// of 8 and all arrays start at multiples of 16 bytes. Otherwise each head has a call of its own.
inline constexpr int64_t kAttentionScoreBytesMax = int64_t{256} << 20;

template <typename Real>
void attention_forward(CudaQueue& queue, const AttentionShape& shape, const Real* q, const Real* k,
                       const Real* v, Real* probabilities, Real* out,
                       int64_t score_bytes_max = kAttentionScoreBytesMax);

template <typename Real>
struct CudaAttentionGradients {
  Real* q = nullptr;  // replaced; shaped like q
  Real* k = nullptr;  // replaced; summed over a key head's query heads in order, in fp32
  Real* v = nullptr;  // replaced, likewise
};
template <typename Real>
void attention_backward(CudaQueue& queue, const AttentionShape& shape, const Real* dout,
                        const Real* q, const Real* k, const Real* v, const Real* probabilities,
                        const CudaAttentionGradients<Real>& gradients,
                        int64_t score_bytes_max = kAttentionScoreBytesMax);

}  // namespace ckpt::kernels
