// Sums over whole tensors and over their rows, in double: for the norm of a gradient and for means
// over tokens; and of two tensors, element by element, in fp32: for gradients of replicas.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

// Adds the squares of x [count] to *sum. Squares of finite floats cannot overflow a double, so the
// sum is finite exactly if all of x is.
void add_sum_of_squares(int64_t count, const float* x, double* sum);

// Adds every column of x [rows, columns] to sums [columns], rows ascending.
void add_column_sums(int64_t rows, int64_t columns, const float* x, double* sums);

// to[i] += x[i], for `count` elements.
void add(int64_t count, const float* x, float* to);

// On a GPU: likewise in double and in a fixed order, which is another one than on a CPU. All
// pointers are to device memory.
void add_sum_of_squares(CudaQueue& queue, int64_t count, const float* x, double* sum);
void add_column_sums(CudaQueue& queue, int64_t rows, int64_t columns, const float* x, double* sums);
void add(CudaQueue& queue, int64_t count, const float* x, float* to);

}  // namespace ckpt::kernels
