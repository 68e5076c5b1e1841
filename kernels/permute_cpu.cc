#include <algorithm>

#include "kernels/lanes.h"
#include "kernels/permute.h"

namespace ckpt::kernels {

void permute_forward(const PermuteShape& shape, const float* x, const int64_t* position,
                     float* rows) {
  for (int64_t token = 0; token < shape.tokens; ++token) {
    for (int64_t k = 0; k < shape.top_k; ++k) {
      std::copy_n(x + token * shape.width, shape.width,
                  rows + position[token * shape.top_k + k] * shape.width);
    }
  }
}

void permute_backward(const PermuteShape& shape, const float* drows, const int64_t* position,
                      float* dx) {
  for (int64_t token = 0; token < shape.tokens; ++token) {
    float* out = dx + token * shape.width;
    for (int64_t k = 0; k < shape.top_k; ++k) {
      const float* row = drows + position[token * shape.top_k + k] * shape.width;
      for (int64_t i = 0; i < shape.width; ++i) out[i] += row[i];
    }
  }
}

void unpermute_forward(const PermuteShape& shape, const float* rows, const int64_t* position,
                       const float* weight, float* out) {
  for (int64_t token = 0; token < shape.tokens; ++token) {
    float* sum_row = out + token * shape.width;
    for (int64_t k = 0; k < shape.top_k; ++k) {
      const float* row = rows + position[token * shape.top_k + k] * shape.width;
      const float w = weight[token * shape.top_k + k];
      for (int64_t i = 0; i < shape.width; ++i) sum_row[i] += w * row[i];
    }
  }
}

void unpermute_backward(const PermuteShape& shape, const float* dout, const float* rows,
                        const int64_t* position, const float* weight, float* drows,
                        float* dweight) {
  for (int64_t token = 0; token < shape.tokens; ++token) {
    const float* d = dout + token * shape.width;
    for (int64_t k = 0; k < shape.top_k; ++k) {
      const int64_t assignment = token * shape.top_k + k;
      const int64_t at = position[assignment] * shape.width;
      dweight[assignment] = dot(d, rows + at, shape.width);
      const float w = weight[assignment];
      for (int64_t i = 0; i < shape.width; ++i) drows[at + i] = w * d[i];
    }
  }
}

void gather_rows(int64_t count, int64_t width, const int64_t* source, const float* from,
                 float* to) {
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(from + source[i] * width, width, to + i * width);
  }
}

void scatter_rows(int64_t count, int64_t width, const int64_t* target, const float* from,
                  float* to) {
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(from + i * width, width, to + target[i] * width);
  }
}

}  // namespace ckpt::kernels
