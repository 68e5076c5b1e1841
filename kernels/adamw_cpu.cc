#include <cmath>

#include "kernels/adamw.h"

namespace ckpt::kernels {

void adamw_update(const AdamWStep& step, int64_t count, const float* grad, float* value, float* m,
                  float* v) {
  const double bias1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
  const double bias2 = 1 - std::pow(step.beta2, static_cast<double>(step.step));
  const float factor = static_cast<float>(step.gradient_factor);
  const float decay = static_cast<float>(1 - step.learning_rate * step.weight_decay);
  const float rate = static_cast<float>(step.learning_rate / bias1);
  const float root_scale = static_cast<float>(1 / std::sqrt(bias2));
  const float beta2 = static_cast<float>(step.beta2);
  const float new1 = static_cast<float>(1 - step.beta1);
  const float new2 = static_cast<float>(1 - step.beta2);
  const float eps = static_cast<float>(step.eps);
  for (int64_t i = 0; i < count; ++i) {
    const float g = factor * grad[i];
    m[i] += new1 * (g - m[i]);
    v[i] = beta2 * v[i] + new2 * g * g;
    value[i] = decay * value[i] - rate * m[i] / (std::sqrt(v[i]) * root_scale + eps);
  }
}

}  // namespace ckpt::kernels
