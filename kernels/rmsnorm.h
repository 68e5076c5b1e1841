// RMSNorm: y = scale * x / sqrt(mean(x^2) + eps), row by row.
// Zhang & Sennrich, arXiv:1910.07467. Normalises in fp32, then scales, as Hugging Face's Mixtral.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

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

// On a GPU: inputs and outputs of the matrix products have type Real (float or Bf16); the residual
// stream and its gradient are fp32. dscale is added to in fp32, in a fixed order.
template <typename Real>
void rmsnorm_forward(CudaQueue& queue, const RmsNormShape& shape, const float* x,
                     const float* scale, Real* y, float* inverse_rms);
template <typename Real>
void rmsnorm_backward(CudaQueue& queue, const RmsNormShape& shape, const Real* dy, const float* x,
                      const float* scale, const float* inverse_rms, float* dx, float* dscale);

}  // namespace ckpt::kernels
