// Matrix products of row-major matrices: a thin wrapper of OpenBLAS's sgemm, and one product in
// double.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

// Makes OpenBLAS compute in the calling thread. The order of its sums, and so the bits of the
// result, depend on its thread count; call this once before training. Idempotent, thread-safe.
void use_one_blas_thread();

enum class Transpose { kNo, kYes };

// A row-major matrix whose rows are `stride` floats apart.
struct MatrixView {
  const float* data = nullptr;
  int64_t stride = 0;
  Transpose transpose = Transpose::kNo;  // the operand is this matrix, transposed
};

struct GemmShape {
  int64_t rows = 0;     // of c
  int64_t columns = 0;  // of c
  int64_t inner = 0;    // summed over
};

// c[rows, columns] = alpha * a[rows, inner] b[inner, columns] + beta * c, in one thread. With beta
// 0, c is not read. An empty c is unchanged; inner 0 makes the product zero.
void gemm(const GemmShape& shape, float alpha, const MatrixView& a, const MatrixView& b, float beta,
          float* c, int64_t c_stride);

// c[rows, columns] += a^T b in double, of packed matrices a[inner, rows] and b[inner, columns].
void add_product_of_columns(const GemmShape& shape, const double* a, const double* b, double* c);

}  // namespace ckpt::kernels
