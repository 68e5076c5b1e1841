#include <cblas.h>

#include <limits>

#include "formats/base/assert.h"
#include "kernels/blas.h"

namespace ckpt::kernels {
namespace {

// OpenBLAS as Debian packs it counts in 32 bits.
int narrow(int64_t value) {
  CKPT_ASSERT(value >= 0 && value <= std::numeric_limits<int>::max());
  return static_cast<int>(value);
}

CBLAS_TRANSPOSE transpose_of(const MatrixView& view) {
  return view.transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

}  // namespace

void use_one_blas_thread() { openblas_set_num_threads(1); }

void gemm(const GemmShape& shape, float alpha, const MatrixView& a, const MatrixView& b, float beta,
          float* c, int64_t c_stride) {
  if (shape.rows == 0 || shape.columns == 0) return;
  cblas_sgemm(CblasRowMajor, transpose_of(a), transpose_of(b), narrow(shape.rows),
              narrow(shape.columns), narrow(shape.inner), alpha, a.data, narrow(a.stride), b.data,
              narrow(b.stride), beta, c, narrow(c_stride));
}

void add_product_of_columns(const GemmShape& shape, const double* a, const double* b, double* c) {
  if (shape.rows == 0 || shape.columns == 0 || shape.inner == 0) return;
  cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, narrow(shape.rows), narrow(shape.columns),
              narrow(shape.inner), 1.0, a, narrow(shape.rows), b, narrow(shape.columns), 1.0, c,
              narrow(shape.columns));
}

}  // namespace ckpt::kernels
