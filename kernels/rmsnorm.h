// RMSNorm: y = scale * x / sqrt(mean(x^2) + eps), row by row.
// Zhang & Sennrich, arXiv:1910.07467. Normalises in fp32, then scales, as Hugging Face's Mixtral.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

struct RmsNormShape {
  int64_t rows = 0;
  int64_t width = 0;
  float eps = 1e-5f;
};

// x, y: [rows, width], may not overlap; scale: [width]; inverse_rms: [rows], kept for backward.
void rmsnorm_forward(const RmsNormShape& shape, const float* x, const float* scale, float* y,
                     float* inverse_rms);

// Adds to dx [rows, width], and in double to dscale [width] (see linear_backward_weight()). dx may
// not overlap dy.
void rmsnorm_backward(const RmsNormShape& shape, const float* dy, const float* x,
                      const float* scale, const float* inverse_rms, float* dx, double* dscale);

}  // namespace ckpt::kernels
