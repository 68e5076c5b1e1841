// Cross-entropy of a softmax over the vocabulary, in nats.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

struct CrossEntropyShape {
  int64_t rows = 0;
  int64_t vocab = 0;
  int32_t ignored = -100;  // a target that counts nothing
};

struct CrossEntropySum {
  double loss = 0;      // summed over targets that are not ignored
  int64_t targets = 0;  // how many those are
};

// logits: [rows, vocab]; targets: [rows], in [0, vocab) or ignored. log_sum_exp: [rows], kept for
// backward.
CrossEntropySum cross_entropy_forward(const CrossEntropyShape& shape, const float* logits,
                                      const int32_t* targets, float* log_sum_exp);

// dlogits [rows, vocab] = scale * (softmax - one_hot(target)); zero where ignored. May be the same
// memory as logits.
void cross_entropy_backward(const CrossEntropyShape& shape, float scale, const float* logits,
                            const int32_t* targets, const float* log_sum_exp, float* dlogits);

}  // namespace ckpt::kernels
