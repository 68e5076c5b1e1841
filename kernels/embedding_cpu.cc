#include <algorithm>

#include "kernels/embedding.h"

namespace ckpt::kernels {

void embedding_forward(int64_t count, int64_t width, const int32_t* tokens, const float* table,
                       float* out) {
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(table + int64_t{tokens[i]} * width, width, out + i * width);
  }
}

void embedding_backward(int64_t count, int64_t width, const int32_t* tokens, const float* dout,
                        double* dtable) {
  for (int64_t i = 0; i < count; ++i) {
    double* row = dtable + int64_t{tokens[i]} * width;
    for (int64_t j = 0; j < width; ++j) {
      row[j] += static_cast<double>(dout[i * width + j]);
    }
  }
}

}  // namespace ckpt::kernels
