// The softmax of attention over the rows of many square matrices of scores.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

// scores, probabilities: [rows, seq_len], where `rows` is a multiple of seq_len. Row i of a matrix
// becomes the softmax of its first i + 1 scores, and zero after them; the other scores are ignored.
// Both may be the same memory if Real is float.
template <typename Real>
void causal_softmax(CudaQueue& queue, int64_t rows, int64_t seq_len, const float* scores,
                    Real* probabilities);

// dscores = scale * p * (dp - sum(dp * p)) row by row, with p the probabilities and dp their
// gradient; zero where a token would look ahead. dprobabilities and dscores may be the same memory
// if Real is float.
template <typename Real>
void causal_softmax_backward(CudaQueue& queue, int64_t rows, int64_t seq_len, float scale,
                             const Real* probabilities, const float* dprobabilities, Real* dscores);

}  // namespace ckpt::kernels
