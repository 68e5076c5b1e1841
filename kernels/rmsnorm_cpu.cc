#include <cmath>

#include "kernels/lanes.h"
#include "kernels/rmsnorm.h"

namespace ckpt::kernels {

void rmsnorm_forward(const RmsNormShape& shape, const float* x, const float* scale, float* y,
                     float* inverse_rms) {
  const int64_t width = shape.width;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* in = x + row * width;
    float* out = y + row * width;
    const float mean_square = dot(in, in, width) / static_cast<float>(width);
    const float inverse = 1.0f / std::sqrt(mean_square + shape.eps);
    inverse_rms[row] = inverse;
    for (int64_t i = 0; i < width; ++i) out[i] = scale[i] * (in[i] * inverse);
  }
}

void rmsnorm_backward(const RmsNormShape& shape, const float* dy, const float* x,
                      const float* scale, const float* inverse_rms, float* dx, double* dscale) {
  const int64_t width = shape.width;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* in = x + row * width;
    const float* dout = dy + row * width;
    float* din = dx + row * width;
    const float inverse = inverse_rms[row];
    // With n = x * inverse and g = dy * scale:  dx = inverse * (g - n * mean(g * n)).
    float lane[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) lane[j] += dout[i + j] * scale[i + j] * in[i + j];
    }
    for (int64_t j = 0; i + j < width; ++j) lane[j] += dout[i + j] * scale[i + j] * in[i + j];
    const float mean_gn = internal::add_lanes(lane) * inverse / static_cast<float>(width);
    for (i = 0; i < width; ++i) {
      const float normalised = in[i] * inverse;
      din[i] += inverse * (dout[i] * scale[i] - normalised * mean_gn);
      dscale[i] += static_cast<double>(dout[i] * normalised);
    }
  }
}

}  // namespace ckpt::kernels
