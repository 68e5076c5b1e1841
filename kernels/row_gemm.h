// Matrix products for rows that come and go: the bits of a row do not depend on how many other rows
// are in the call, nor on which place it has among them.
//
// An expert's rows lie on one rank or on several, as the placement says, and the result shall be
// the same. OpenBLAS cannot be used for that: its kernel for Haswell sums the rows that are left
// over at the end in another order than the others, and on other CPUs a product of few rows takes
// another way than one of many. Here every element is one running sum over `inner`, ascending, in
// fp32 (fused, where the CPU has FMA), and nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/blas.h"
#include "kernels/linear.h"

namespace ckpt::kernels {

// c[rows, columns] = a[rows, inner] b[inner, columns], or added to c. `a` may not be transposed;
// `b` may. `room` receives a copy of b in the order in which it is read; it grows as needed.
void row_gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, Write write,
              float* c, int64_t c_stride, std::vector<float>& room);

// dw[out, in] += dy[rows, out]^T x[rows, in], rows in any order: the products of fp32 values are
// exact in double, and their sum hardly ever rounds to another fp32 value in another order. The
// operands are fp32 values in double.
void add_weight_gradient(int64_t rows, int64_t out, int64_t in, const double* dy, const double* x,
                         double* dw);

}  // namespace ckpt::kernels
