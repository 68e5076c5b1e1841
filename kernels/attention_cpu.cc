#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/blas.h"
#include "kernels/lanes.h"

namespace ckpt::kernels {
namespace {

float score_scale(const AttentionShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
}

// Row i of scores becomes the softmax of its first i+1 values, and zero after them.
void causal_softmax(int64_t seq_len, float* scores) {
  for (int64_t row = 0; row < seq_len; ++row) {
    float* values = scores + row * seq_len;
    const int64_t visible = row + 1;
    const float largest = *std::max_element(values, values + visible);
    for (int64_t i = 0; i < visible; ++i) values[i] = std::exp(values[i] - largest);
    const float inverse = 1.0f / sum(values, visible);
    for (int64_t i = 0; i < visible; ++i) values[i] *= inverse;
    std::fill(values + visible, values + seq_len, 0.0f);
  }
}

// dscores from dprobabilities, in place: p * (dp - sum(dp * p)), times the score scale.
void causal_softmax_backward(int64_t seq_len, float scale, const float* probabilities,
                             float* gradient) {
  for (int64_t row = 0; row < seq_len; ++row) {
    const float* p = probabilities + row * seq_len;
    float* d = gradient + row * seq_len;
    const int64_t visible = row + 1;
    const float mean = dot(d, p, visible);
    for (int64_t i = 0; i < visible; ++i) d[i] = scale * p[i] * (d[i] - mean);
    std::fill(d + visible, d + seq_len, 0.0f);
  }
}

// Offsets of one (sequence, head) in the interleaved layouts.
struct HeadOffsets {
  int64_t query = 0;
  int64_t key = 0;
  int64_t probabilities = 0;
};

HeadOffsets offsets_of(const AttentionShape& shape, int64_t sequence, int64_t head) {
  const int64_t group = shape.heads / shape.kv_heads;
  return {(sequence * shape.seq_len * shape.heads + head) * shape.head_dim,
          (sequence * shape.seq_len * shape.kv_heads + head / group) * shape.head_dim,
          (sequence * shape.heads + head) * shape.seq_len * shape.seq_len};
}

}  // namespace

void attention_forward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                       float* probabilities, float* out) {
  const int64_t n = shape.seq_len;
  const int64_t d = shape.head_dim;
  const int64_t query_stride = shape.heads * d;
  const int64_t key_stride = shape.kv_heads * d;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const HeadOffsets at = offsets_of(shape, sequence, head);
      float* p = probabilities + at.probabilities;
      gemm({n, n, d}, score_scale(shape), {q + at.query, query_stride},
           {k + at.key, key_stride, Transpose::kYes}, 0.0f, p, n);
      causal_softmax(n, p);
      gemm({n, d, n}, 1.0f, {p, n}, {v + at.key, key_stride}, 0.0f, out + at.query, query_stride);
    }
  }
}

void attention_backward(const AttentionShape& shape, const float* dout, const float* q,
                        const float* k, const float* v, const float* probabilities,
                        const AttentionGradients& gradients) {
  const int64_t n = shape.seq_len;
  const int64_t d = shape.head_dim;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t query_stride = shape.heads * d;
  const int64_t key_stride = shape.kv_heads * d;
  float* dscores = gradients.scratch;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const HeadOffsets at = offsets_of(shape, sequence, head);
      const float* p = probabilities + at.probabilities;
      // The first query head of a group overwrites the shared key and value gradients.
      const float keep = head % group == 0 ? 0.0f : 1.0f;
      gemm({n, d, n}, 1.0f, {p, n, Transpose::kYes}, {dout + at.query, query_stride}, keep,
           gradients.v + at.key, key_stride);
      gemm({n, n, d}, 1.0f, {dout + at.query, query_stride},
           {v + at.key, key_stride, Transpose::kYes}, 0.0f, dscores, n);
      causal_softmax_backward(n, score_scale(shape), p, dscores);
      gemm({n, d, n}, 1.0f, {dscores, n}, {k + at.key, key_stride}, 0.0f, gradients.q + at.query,
           query_stride);
      gemm({n, d, n}, 1.0f, {dscores, n, Transpose::kYes}, {q + at.query, query_stride}, keep,
           gradients.k + at.key, key_stride);
    }
  }
}

}  // namespace ckpt::kernels
