#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"

namespace ckpt::kernels {

CrossEntropySum cross_entropy_forward(const CrossEntropyShape& shape, const float* logits,
                                      const int32_t* targets, float* log_sum_exp) {
  CrossEntropySum sum;
  for (int64_t row = 0; row < shape.rows; ++row) {
    log_sum_exp[row] = 0;
    if (targets[row] == shape.ignored) continue;
    const float* values = logits + row * shape.vocab;
    const float largest = *std::max_element(values, values + shape.vocab);
    double total = 0;
    for (int64_t i = 0; i < shape.vocab; ++i) total += std::exp(values[i] - largest);
    log_sum_exp[row] = largest + static_cast<float>(std::log(total));
    sum.loss += std::log(total) + largest - values[targets[row]];
    ++sum.targets;
  }
  return sum;
}

void cross_entropy_backward(const CrossEntropyShape& shape, float scale, const float* logits,
                            const int32_t* targets, const float* log_sum_exp, float* dlogits) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* values = logits + row * shape.vocab;
    float* d = dlogits + row * shape.vocab;
    if (targets[row] == shape.ignored) {
      std::fill(d, d + shape.vocab, 0.0f);
      continue;
    }
    for (int64_t i = 0; i < shape.vocab; ++i) d[i] = scale * std::exp(values[i] - log_sum_exp[row]);
    d[targets[row]] -= scale;
  }
}

}  // namespace ckpt::kernels
