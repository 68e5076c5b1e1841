#include "kernels/lanes.h"
#include "kernels/sums.h"

namespace ckpt::kernels {

// Eight running sums: exact enough that a norm does not depend, beyond rounding, on how tensors are
// spread over ranks, and fast enough for every step.
void add_sum_of_squares(int64_t count, const float* x, double* sum) {
  double lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lane[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
    }
  }
  for (int64_t j = 0; i + j < count; ++j) {
    lane[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  double total = 0;
  for (const double part : lane) total += part;
  *sum += total;
}

void add_column_sums(int64_t rows, int64_t columns, const float* x, double* sums) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      sums[column] += static_cast<double>(x[row * columns + column]);
    }
  }
}

void add(int64_t count, const float* x, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += x[i];
}

}  // namespace ckpt::kernels
