// Matrix products without OpenBLAS (the `gpu` preset), for the CPU versions of the kernels. Each
// element is summed in the order of the formula.
#include <algorithm>
#include <vector>

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
  // The inner loop runs over the columns of c, so that the compiler vectorises it: the checks of
  // large shapes on a GPU wait for these products.
  const auto columns = static_cast<size_t>(shape.columns);
  std::vector<float> copied(static_cast<size_t>(shape.inner) * columns);
  for (int64_t i = 0; i < shape.inner; ++i) {
    for (int64_t column = 0; column < shape.columns; ++column) {
      copied[i * shape.columns + column] = element(b, i, column);
    }
  }
  std::vector<float> sums(columns);
  for (int64_t row = 0; row < shape.rows; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t i = 0; i < shape.inner; ++i) {
      const float factor = element(a, row, i);
      const float* const from = copied.data() + i * shape.columns;
      for (int64_t column = 0; column < shape.columns; ++column) {
        sums[column] += factor * from[column];
      }
    }
    for (int64_t column = 0; column < shape.columns; ++column) {
      float& to = c[row * c_stride + column];
      to = alpha * sums[column] + (beta == 0 ? 0 : beta * to);
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
