#include "kernels/blas.h"
#include "kernels/linear.h"

namespace ckpt::kernels {
namespace {
float beta_of(Write write) { return write == Write::kAdd ? 1.0f : 0.0f; }
}  // namespace

void linear_forward(const LinearShape& shape, const float* x, const float* w, float* y,
                    Write write) {
  gemm({shape.rows, shape.out, shape.in}, 1.0f, {x, shape.in}, {w, shape.in, Transpose::kYes},
       beta_of(write), y, shape.out);
}

void linear_backward_input(const LinearShape& shape, const float* dy, const float* w, float* dx,
                           Write write) {
  gemm({shape.rows, shape.in, shape.out}, 1.0f, {dy, shape.out}, {w, shape.in}, beta_of(write), dx,
       shape.in);
}

void linear_backward_weight(const LinearShape& shape, const float* dy, const float* x, float* dw) {
  if (shape.rows == 0) return;
  gemm({shape.out, shape.in, shape.rows}, 1.0f, {dy, shape.out, Transpose::kYes}, {x, shape.in},
       1.0f, dw, shape.in);
}

}  // namespace ckpt::kernels
