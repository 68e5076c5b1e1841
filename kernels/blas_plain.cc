// The product where OpenBLAS is not (the `gpu` preset): what the CPU versions of the kernels need
// to be linked there. In the order of the formula, and slow.
#include "kernels/blas.h"

namespace ckpt::kernels {
namespace {

float element(const MatrixView& view, int64_t row, int64_t column) {
  return view.transpose == Transpose::kYes ? view.data[column * view.stride + row]
                                           : view.data[row * view.stride + column];
}

}  // namespace

void use_one_blas_thread() {}

void gemm(const GemmShape& shape, float alpha, const MatrixView& a, const MatrixView& b, float beta,
          float* c, int64_t c_stride) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t column = 0; column < shape.columns; ++column) {
      float sum = 0;
      for (int64_t i = 0; i < shape.inner; ++i) sum += element(a, row, i) * element(b, i, column);
      float& to = c[row * c_stride + column];
      to = alpha * sum + (beta == 0 ? 0 : beta * to);
    }
  }
}

void add_product_of_columns(const GemmShape& shape, const double* a, const double* b, double* c) {
  for (int64_t i = 0; i < shape.inner; ++i) {
    for (int64_t row = 0; row < shape.rows; ++row) {
      const double factor = a[i * shape.rows + row];
      for (int64_t column = 0; column < shape.columns; ++column) {
        c[row * shape.columns + column] += factor * b[i * shape.columns + column];
      }
    }
  }
}

}  // namespace ckpt::kernels
