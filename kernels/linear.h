// Linear layer without bias: y = x w^T, with w stored [out, in] as PyTorch does.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

struct LinearShape {
  int64_t rows = 0;  // tokens
  int64_t in = 0;
  int64_t out = 0;
  // Rows per block. Each block is a product of its own, so that the bits of a row, and of a block's
  // share of dw, do not depend on the number of other rows. 0: one block.
  int64_t block_rows = 0;
};

// Whether a result replaces its target or is added to it (a residual, a second gradient).
enum class Write { kReplace, kAdd };

// y[rows, out] from x[rows, in] and w[out, in].
void linear_forward(const LinearShape& shape, const float* x, const float* w, float* y,
                    Write write = Write::kReplace);

// dx[rows, in] = dy[rows, out] w.
void linear_backward_input(const LinearShape& shape, const float* dy, const float* w, float* dx,
                           Write write = Write::kReplace);

// Adds dy^T x to dw[out, in], block by block. In double, where a sum of fp32 values hardly ever
// rounds: so blocks may be added by any rank and in any order. scratch: [out, in], any content.
void linear_backward_weight(const LinearShape& shape, const float* dy, const float* x,
                            float* scratch, double* dw);

// On a GPU, through cuBLAS (kernels/cuda/gemm.h): sums in fp32, rounded to Out once. <Real, Out> is
// <float, float>, <Bf16, Bf16> or <Bf16, float>. block_rows is ignored: the bits of a row may
// depend on the number of other rows in the call. Results may not overlap operands.
template <typename Real, typename Out>
void linear_forward(CudaQueue& queue, const LinearShape& shape, const Real* x, const Real* w,
                    Out* y, Write write = Write::kReplace);
template <typename Real, typename Out>
void linear_backward_input(CudaQueue& queue, const LinearShape& shape, const Real* dy,
                           const Real* w, Out* dx, Write write = Write::kReplace);
// Adds to dw [out, in] in fp32.
template <typename Real>
void linear_backward_weight(CudaQueue& queue, const LinearShape& shape, const Real* dy,
                            const Real* x, float* dw);

}  // namespace ckpt::kernels
