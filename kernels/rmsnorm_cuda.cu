#include "kernels/bf16.h"
#include "kernels/cuda/launch.h"
#include "kernels/rmsnorm.h"

namespace ckpt::kernels {
namespace {

// A block per row.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(RmsNormShape shape, const float* x, const float* scale, Real* y,
                   float* inverse_rms) {
  __shared__ float sums[kBlockThreads / kWarpThreads];
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const float* in = x + row * shape.width;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < shape.width; i += blockDim.x) squares += in[i] * in[i];
    const float mean = block_sum<kBlockThreads>(squares, sums) / static_cast<float>(shape.width);
    const float inverse = 1.0f / sqrtf(mean + shape.eps);
    if (threadIdx.x == 0) inverse_rms[row] = inverse;
    for (int64_t i = threadIdx.x; i < shape.width; i += blockDim.x) {
      y[row * shape.width + i] = from_float<Real>(scale[i] * (in[i] * inverse));
    }
  }
}

// With n = x * inverse and g = dy * scale:  dx += inverse * (g - n * mean(g * n)).
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    backward_kernel(RmsNormShape shape, const Real* dy, const float* x, const float* scale,
                    const float* inverse_rms, float* dx) {
  __shared__ float sums[kBlockThreads / kWarpThreads];
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const int64_t first = row * shape.width;
    const float inverse = inverse_rms[row];
    float gn = 0;
    for (int64_t i = threadIdx.x; i < shape.width; i += blockDim.x) {
      gn += to_float(dy[first + i]) * scale[i] * (x[first + i] * inverse);
    }
    const float mean = block_sum<kBlockThreads>(gn, sums) / static_cast<float>(shape.width);
    for (int64_t i = threadIdx.x; i < shape.width; i += blockDim.x) {
      const float normalised = x[first + i] * inverse;
      dx[first + i] += inverse * (to_float(dy[first + i]) * scale[i] - normalised * mean);
    }
  }
}

// partial[part, column]: the share of rows [part * rows_per_part, ...) in dscale.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    scale_parts_kernel(RmsNormShape shape, int64_t rows_per_part, const Real* dy, const float* x,
                       const float* inverse_rms, float* partial) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= shape.width) return;
  const int64_t begin = blockIdx.y * rows_per_part;
  const int64_t end = std::min(begin + rows_per_part, shape.rows);
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * shape.width + column;
    sum += to_float(dy[at]) * (x[at] * inverse_rms[row]);
  }
  partial[blockIdx.y * shape.width + column] = sum;
}

__global__ void __launch_bounds__(kBlockThreads)
    add_parts_kernel(int64_t width, int64_t parts, const float* partial, float* dscale) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += partial[part * width + column];
  dscale[column] += sum;
}

}  // namespace

template <typename Real>
void rmsnorm_forward(CudaQueue& queue, const RmsNormShape& shape, const float* x,
                     const float* scale, Real* y, float* inverse_rms) {
  launch(queue, "rmsnorm", blocks_for(shape.rows, 1), kBlockThreads, forward_kernel<Real>, shape, x,
         scale, y, inverse_rms);
}

template <typename Real>
void rmsnorm_backward(CudaQueue& queue, const RmsNormShape& shape, const Real* dy, const float* x,
                      const float* scale, const float* inverse_rms, float* dx, float* dscale) {
  if (shape.rows == 0) return;
  launch(queue, "rmsnorm backward", blocks_for(shape.rows, 1), kBlockThreads, backward_kernel<Real>,
         shape, dy, x, scale, inverse_rms, dx);
  constexpr int64_t kPartsMax = 64;
  const int64_t rows_per_part = (shape.rows + kPartsMax - 1) / kPartsMax;
  const int64_t parts = (shape.rows + rows_per_part - 1) / rows_per_part;
  auto* partial =
      static_cast<float*>(queue.scratch(static_cast<size_t>(parts * shape.width) * sizeof(float)));
  const unsigned columns = blocks_for(shape.width, kBlockThreads);
  launch(queue, "rmsnorm scale gradient", dim3(columns, static_cast<unsigned>(parts)),
         kBlockThreads, scale_parts_kernel<Real>, shape, rows_per_part, dy, x, inverse_rms,
         partial);
  launch(queue, "rmsnorm scale gradient", columns, kBlockThreads, add_parts_kernel, shape.width,
         parts, partial, dscale);
}

template void rmsnorm_forward<float>(CudaQueue&, const RmsNormShape&, const float*, const float*,
                                     float*, float*);
template void rmsnorm_forward<Bf16>(CudaQueue&, const RmsNormShape&, const float*, const float*,
                                    Bf16*, float*);
template void rmsnorm_backward<float>(CudaQueue&, const RmsNormShape&, const float*, const float*,
                                      const float*, const float*, float*, float*);
template void rmsnorm_backward<Bf16>(CudaQueue&, const RmsNormShape&, const Bf16*, const float*,
                                     const float*, const float*, float*, float*);

}  // namespace ckpt::kernels
