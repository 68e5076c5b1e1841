#include "kernels/cuda/launch.h"
#include "kernels/sums.h"

namespace ckpt::kernels {
namespace {

// Each block writes one partial sum, and one block adds them up: the order depends on the shape
// alone.
constexpr int64_t kBlocksMax = 512;
constexpr int64_t kRowsPerBlock = 64;

__global__ void __launch_bounds__(kBlockThreads)
    squares_kernel(int64_t count, const float* x, double* partial) {
  __shared__ double of_warps[kBlockThreads / kWarpThreads];
  double sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kBlockThreads) {
    const auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  sum = block_sum<kBlockThreads>(sum, of_warps);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// A block's part of the rows, a thread for each column.
__global__ void __launch_bounds__(kBlockThreads)
    columns_kernel(int64_t rows, int64_t columns, const float* x, double* partial) {
  for (int64_t column = threadIdx.x; column < columns; column += kBlockThreads) {
    double sum = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
      sum += static_cast<double>(x[row * columns + column]);
    }
    partial[blockIdx.x * columns + column] = sum;
  }
}

// *sum += all of partial [parts], by one block.
__global__ void __launch_bounds__(kBlockThreads)
    total_kernel(int64_t parts, const double* partial, double* sum) {
  __shared__ double of_warps[kBlockThreads / kWarpThreads];
  double total = 0;
  for (int64_t part = threadIdx.x; part < parts; part += kBlockThreads) total += partial[part];
  total = block_sum<kBlockThreads>(total, of_warps);
  if (threadIdx.x == 0) *sum += total;
}

// sums[column] += all of partial [parts, columns], ascending.
__global__ void __launch_bounds__(kBlockThreads)
    partial_kernel(int64_t parts, int64_t columns, const double* partial, double* sums) {
  const int64_t column = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (column >= columns) return;
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += partial[part * columns + column];
  sums[column] += sum;
}

__global__ void __launch_bounds__(kBlockThreads)
    add_kernel(int64_t count, const float* __restrict__ x, float* __restrict__ to) {
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kBlockThreads) {
    to[i] += x[i];
  }
}

double* partials(CudaQueue& queue, int64_t count) {
  return static_cast<double*>(queue.scratch(static_cast<size_t>(count) * sizeof(double)));
}

}  // namespace

void add_sum_of_squares(CudaQueue& queue, int64_t count, const float* x, double* sum) {
  const unsigned blocks = blocks_for(count, kBlockThreads, kBlocksMax);
  if (blocks == 0) return;
  double* const partial = partials(queue, blocks);
  launch(queue, "squares", blocks, kBlockThreads, squares_kernel, count, x, partial);
  launch(queue, "sum of squares", 1, kBlockThreads, total_kernel, blocks, partial, sum);
}

void add_column_sums(CudaQueue& queue, int64_t rows, int64_t columns, const float* x,
                     double* sums) {
  const unsigned blocks = blocks_for(rows, kRowsPerBlock, kBlocksMax);
  if (blocks == 0) return;
  double* const partial = partials(queue, blocks * columns);
  launch(queue, "columns", blocks, kBlockThreads, columns_kernel, rows, columns, x, partial);
  launch(queue, "column sums", blocks_for(columns, kBlockThreads, columns), kBlockThreads,
         partial_kernel, blocks, columns, partial, sums);
}

void add(CudaQueue& queue, int64_t count, const float* x, float* to) {
  const unsigned blocks = blocks_for(count, kBlockThreads, kBlocksMax);
  if (blocks == 0) return;
  launch(queue, "add", blocks, kBlockThreads, add_kernel, count, x, to);
}

}  // namespace ckpt::kernels
