// Factors of an AdamW step that are equal for all elements: computed once, in double, on the CPU.
#pragma once

#include <cmath>

#include "kernels/adamw.h"

namespace ckpt::kernels {

struct AdamWFactors {
  float gradient;    // multiplies the gradient
  float decay;       // multiplies the value
  float rate;        // learning rate, with the bias correction of m
  float root_scale;  // the bias correction of v; multiplies the root of v
  float beta2;
  float new1;  // share of the gradient in m
  float new2;  // share of the squared gradient in v
  float eps;
};

inline AdamWFactors adamw_factors(const AdamWStep& step) {
  const double bias1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
  const double bias2 = 1 - std::pow(step.beta2, static_cast<double>(step.step));
  return {
      .gradient = static_cast<float>(step.gradient_factor),
      .decay = static_cast<float>(1 - step.learning_rate * step.weight_decay),
      .rate = static_cast<float>(step.learning_rate / bias1),
      .root_scale = static_cast<float>(1 / std::sqrt(bias2)),
      .beta2 = static_cast<float>(step.beta2),
      .new1 = static_cast<float>(1 - step.beta1),
      .new2 = static_cast<float>(1 - step.beta2),
      .eps = static_cast<float>(step.eps),
  };
}

}  // namespace ckpt::kernels
