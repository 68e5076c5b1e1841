// Cross-entropy of a softmax over the vocabulary, in nats.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

struct CrossEntropyShape {
  int64_t rows = 0;
  int64_t vocab = 0;
  int32_t ignored = -100;  // target of a row that does not count
};

struct CrossEntropySum {
  double loss = 0;      // summed over targets that are not ignored
  int64_t targets = 0;  // number of targets that are not ignored
};

// logits: [rows, vocab]; targets: [rows], in [0, vocab) or ignored. log_sum_exp: [rows], kept for
// backward.
CrossEntropySum cross_entropy_forward(const CrossEntropyShape& shape, const float* logits,
                                      const int32_t* targets, float* log_sum_exp);

// dlogits [rows, vocab] = scale * (softmax - one_hot(target)); zero where ignored. May be the same
// memory as logits.
void cross_entropy_backward(const CrossEntropyShape& shape, float scale, const float* logits,
                            const int32_t* targets, const float* log_sum_exp, float* dlogits);

// On a GPU: all pointers are to device memory. Replaces *sum, in double and in a fixed order.
void cross_entropy_forward(CudaQueue& queue, const CrossEntropyShape& shape, const float* logits,
                           const int32_t* targets, float* log_sum_exp, CrossEntropySum* sum);
// dlogits is of type Real (float or Bf16), computed in fp32. As float it may be the same memory as
// logits, as Bf16 it may not overlap them.
template <typename Real>
void cross_entropy_backward(CudaQueue& queue, const CrossEntropyShape& shape, float scale,
                            const float* logits, const int32_t* targets, const float* log_sum_exp,
                            Real* dlogits);

}  // namespace ckpt::kernels
