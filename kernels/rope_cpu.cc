#include <cmath>

#include "kernels/rope.h"

namespace ckpt::kernels {
namespace {

// direction +1 rotates by the angle, -1 by its negative.
void rotate(const RopeShape& shape, const float* cosine, const float* sine, float direction,
            float* x) {
  const int64_t half = shape.head_dim / 2;
  for (int64_t token = 0; token < shape.tokens; ++token) {
    const float* c = cosine + token % shape.seq_len * half;
    const float* s = sine + token % shape.seq_len * half;
    for (int64_t head = 0; head < shape.heads; ++head) {
      float* low = x + (token * shape.heads + head) * shape.head_dim;
      float* high = low + half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = low[i];
        const float b = high[i];
        const float signed_sine = direction * s[i];
        low[i] = a * c[i] - b * signed_sine;
        high[i] = b * c[i] + a * signed_sine;
      }
    }
  }
}

}  // namespace

void rope_table(int64_t seq_len, int64_t head_dim, double theta, float* cosine, float* sine) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    // Frequency and angle are rounded to fp32 before cosine and sine, as PyTorch does: at large
    // positions that rounding is what decides whether logits agree.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(theta), exponent);
    for (int64_t position = 0; position < seq_len; ++position) {
      const float angle = static_cast<float>(position) * frequency;
      cosine[position * half + i] = std::cos(angle);
      sine[position * half + i] = std::sin(angle);
    }
  }
}

void rope_forward(const RopeShape& shape, const float* cosine, const float* sine, float* x) {
  rotate(shape, cosine, sine, 1.0f, x);
}

void rope_backward(const RopeShape& shape, const float* cosine, const float* sine, float* dx) {
  rotate(shape, cosine, sine, -1.0f, dx);
}

}  // namespace ckpt::kernels
