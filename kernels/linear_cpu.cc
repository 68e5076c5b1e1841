#include <algorithm>

#include "kernels/blas.h"
#include "kernels/linear.h"

namespace ckpt::kernels {
namespace {

float beta_of(Write write) { return write == Write::kAdd ? 1.0f : 0.0f; }

// Calls work(first row, rows) for every block.
template <typename Work>
void for_each_block(const LinearShape& shape, Work work) {
  const int64_t block = shape.block_rows == 0 ? shape.rows : shape.block_rows;
  for (int64_t row = 0; row < shape.rows; row += block) {
    work(row, std::min(block, shape.rows - row));
  }
}

}  // namespace

void linear_forward(const LinearShape& shape, const float* x, const float* w, float* y,
                    Write write) {
  for_each_block(shape, [&](int64_t row, int64_t rows) {
    gemm({rows, shape.out, shape.in}, 1.0f, {x + row * shape.in, shape.in},
         {w, shape.in, Transpose::kYes}, beta_of(write), y + row * shape.out, shape.out);
  });
}

void linear_backward_input(const LinearShape& shape, const float* dy, const float* w, float* dx,
                           Write write) {
  for_each_block(shape, [&](int64_t row, int64_t rows) {
    gemm({rows, shape.in, shape.out}, 1.0f, {dy + row * shape.out, shape.out}, {w, shape.in},
         beta_of(write), dx + row * shape.in, shape.in);
  });
}

void linear_backward_weight(const LinearShape& shape, const float* dy, const float* x,
                            float* scratch, double* dw) {
  const int64_t count = shape.out * shape.in;
  for_each_block(shape, [&](int64_t row, int64_t rows) {
    gemm({shape.out, shape.in, rows}, 1.0f, {dy + row * shape.out, shape.out, Transpose::kYes},
         {x + row * shape.in, shape.in}, 0.0f, scratch, shape.in);
    for (int64_t i = 0; i < count; ++i) dw[i] += static_cast<double>(scratch[i]);
  });
}

}  // namespace ckpt::kernels
