// Matrix product of row-major matrices on a GPU: a thin wrapper of cuBLAS, without CUDA headers.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/blas.h"
#include "kernels/queue.h"

namespace ckpt::kernels {

// A row-major matrix in device memory whose rows are `stride` elements apart.
template <typename Real>
struct DeviceMatrix {
  const Real* data = nullptr;
  int64_t stride = 0;
  Transpose transpose = Transpose::kNo;  // the operand is this matrix, transposed
};

// c[rows, columns] = alpha * a[rows, inner] b[inner, columns] + beta * c. beta is 0 (c is not read)
// or 1; c may not overlap a or b. Sums are fp32 whatever Real is, and are rounded to Out once.
// Products of fp32 operands are fp32, too (no TF32). An empty c is unchanged; inner 0 makes the
// product zero.
//
// <Real, Out> is <float, float>, <Bf16, Bf16> or <Bf16, float>. The same call on the same device
// gives the same bits; for another number of rows cuBLAS may choose an algorithm that rounds
// differently.
template <typename Real, typename Out>
void gemm(CudaQueue& queue, const GemmShape& shape, float alpha, const DeviceMatrix<Real>& a,
          const DeviceMatrix<Real>& b, float beta, Out* c, int64_t c_stride);

}  // namespace ckpt::kernels
