#include <cmath>

#include "kernels/adamw.h"
#include "kernels/adamw_factors.h"

namespace ckpt::kernels {

void adamw_update(const AdamWStep& step, int64_t count, const float* grad, float* value, float* m,
                  float* v) {
  const auto [factor, decay, rate, root_scale, beta2, new1, new2, eps] = adamw_factors(step);
  for (int64_t i = 0; i < count; ++i) {
    const float g = factor * grad[i];
    m[i] += new1 * (g - m[i]);
    v[i] = beta2 * v[i] + new2 * g * g;
    value[i] = decay * value[i] - rate * m[i] / (std::sqrt(v[i]) * root_scale + eps);
  }
}

}  // namespace ckpt::kernels
