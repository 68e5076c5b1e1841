// Matrix products with independent rows: the bits of a row depend neither on the number of other
// rows in the call nor on its position among them.
//
// An expert's rows may lie on one rank or on several, as the placement decides, and the result must
// be the same. OpenBLAS does not guarantee that. Its Haswell kernel sums the rows that remain at
// the end in another order; on other CPUs a product of few rows uses another kernel than one of
// many. Here every element is one running sum over `inner`, ascending, in fp32 (fused if the CPU
// has FMA).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/blas.h"
#include "kernels/linear.h"

namespace ckpt::kernels {

// c[rows, columns] = a[rows, inner] b[inner, columns], or added to c. `a` may not be transposed;
// `b` may. `room` is scratch for a copy of b in reading order; it grows as needed.
void row_gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, Write write,
              float* c, int64_t c_stride, std::vector<float>& room);

// dw[out, in] += dy[rows, out]^T x[rows, in], rows in any order: the products of fp32 values are
// exact in double, and their sum hardly ever rounds to another fp32 value in another order. The
// operands are fp32 values in double.
void add_weight_gradient(int64_t rows, int64_t out, int64_t in, const double* dy, const double* x,
                         double* dw);

}  // namespace ckpt::kernels
