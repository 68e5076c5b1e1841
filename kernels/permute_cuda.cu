// Every row of the output is gathered by its own threads, so sums keep their order and nothing is
// added atomically. All of this is bound by memory.
#include "kernels/bf16.h"
#include "kernels/cuda/packed.h"
#include "kernels/permute.h"

namespace ckpt::kernels {
namespace {

constexpr unsigned kWarpsPerBlock = kBlockThreads / kWarpThreads;

// Reads a token's row once and writes it to all its assignments.
template <typename Real, int kCount>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(PermuteShape shape, const Real* __restrict__ x,
                   const int64_t* __restrict__ position, Real* __restrict__ rows) {
  for (int64_t token = first_row(); token < shape.tokens; token += row_stride()) {
    const int64_t* to = position + token * shape.top_k;
    for (int64_t i = threadIdx.x * kCount; i < shape.width; i += blockDim.x * kCount) {
      const auto pack = load_packed<kCount>(x + token * shape.width + i);
      for (int64_t k = 0; k < shape.top_k; ++k) store_packed(rows + to[k] * shape.width + i, pack);
    }
  }
}

// sum_row[t] += sum_k weight[t, k] * rows[position[t, k]], k ascending; without weights they are 1.
template <typename Real, int kCount, bool kWeighted>
__global__ void __launch_bounds__(kBlockThreads)
    sum_kernel(PermuteShape shape, const Real* __restrict__ rows,
               const int64_t* __restrict__ position, const float* __restrict__ weight,
               float* __restrict__ sum_rows) {
  for (int64_t token = first_row(); token < shape.tokens; token += row_stride()) {
    const int64_t first = token * shape.top_k;
    for (int64_t i = threadIdx.x * kCount; i < shape.width; i += blockDim.x * kCount) {
      auto sum = load_packed<kCount>(sum_rows + token * shape.width + i);
      for (int64_t k = 0; k < shape.top_k; ++k) {
        const auto pack = load_packed<kCount>(rows + position[first + k] * shape.width + i);
        const float w = kWeighted ? weight[first + k] : 1.0f;
        for (int j = 0; j < kCount; ++j) sum.values[j] += w * to_float(pack.values[j]);
      }
      store_packed(sum_rows + token * shape.width + i, sum);
    }
  }
}

// A warp per assignment. rows and drows may be the same memory: a thread only overwrites values
// that it has read.
template <typename Real, int kCount>
__global__ void __launch_bounds__(kBlockThreads)
    unpermute_backward_kernel(PermuteShape shape, const float* dout, const Real* rows,
                              const int64_t* position, const float* weight, Real* drows,
                              float* dweight) {
  const int64_t lane = threadIdx.x % kWarpThreads;
  const int64_t first = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarpThreads;
  const int64_t assignments = shape.tokens * shape.top_k;
  for (int64_t at = first; at < assignments; at += int64_t{gridDim.x} * kWarpsPerBlock) {
    const float* d = dout + at / shape.top_k * shape.width;
    const int64_t row = position[at] * shape.width;
    const float w = weight[at];
    float sum = 0;
    for (int64_t i = lane * kCount; i < shape.width; i += kWarpThreads * kCount) {
      const auto gradient = load_packed<kCount>(d + i);
      const auto value = load_packed<kCount>(rows + row + i);
      Packed<Real, kCount> result;
      for (int j = 0; j < kCount; ++j) {
        sum += gradient.values[j] * to_float(value.values[j]);
        result.values[j] = from_float<Real>(w * gradient.values[j]);
      }
      store_packed(drows + row + i, result);
    }
    sum = warp_sum(sum);
    if (lane == 0) dweight[at] = sum;
  }
}

// to[i] = from[index[i]], or to[index[i]] = from[i].
template <typename Real, int kCount, bool kGather>
__global__ void __launch_bounds__(kBlockThreads)
    copy_rows_kernel(int64_t count, int64_t width, const int64_t* __restrict__ index,
                     const Real* __restrict__ from, Real* __restrict__ to) {
  for (int64_t row = first_row(); row < count; row += row_stride()) {
    const int64_t other = index[row];
    const Real* source = from + (kGather ? other : row) * width;
    Real* target = to + (kGather ? row : other) * width;
    for (int64_t i = threadIdx.x * kCount; i < width; i += blockDim.x * kCount) {
      store_packed(target + i, load_packed<kCount>(source + i));
    }
  }
}

template <typename Real, bool kWeighted>
void add_rows(CudaQueue& queue, const char* name, const PermuteShape& shape, const Real* rows,
              const int64_t* position, const float* weight, float* sum_rows) {
  constexpr int kCount = kPackCount<Real>;
  const bool packed = packable(shape.width, kCount, rows, sum_rows);
  const auto over = launch_over_rows(shape.tokens, shape.width / (packed ? kCount : 1));
  launch(queue, name, over.grid, over.block,
         packed ? sum_kernel<Real, kCount, kWeighted> : sum_kernel<Real, 1, kWeighted>, shape, rows,
         position, weight, sum_rows);
}

template <typename Real, bool kGather>
void copy_rows(CudaQueue& queue, const char* name, int64_t count, int64_t width,
               const int64_t* index, const Real* from, Real* to) {
  constexpr int kCount = kPackCount<Real>;
  const bool packed = packable(width, kCount, from, to);
  const auto over = launch_over_rows(count, width / (packed ? kCount : 1));
  launch(queue, name, over.grid, over.block,
         packed ? copy_rows_kernel<Real, kCount, kGather> : copy_rows_kernel<Real, 1, kGather>,
         count, width, index, from, to);
}

}  // namespace

template <typename Real>
void permute_forward(CudaQueue& queue, const PermuteShape& shape, const Real* x,
                     const int64_t* position, Real* rows) {
  constexpr int kCount = kPackCount<Real>;
  const bool packed = packable(shape.width, kCount, x, rows);
  const auto over = launch_over_rows(shape.tokens, shape.width / (packed ? kCount : 1));
  launch(queue, "permute", over.grid, over.block,
         packed ? forward_kernel<Real, kCount> : forward_kernel<Real, 1>, shape, x, position, rows);
}

template <typename Real>
void permute_backward(CudaQueue& queue, const PermuteShape& shape, const Real* drows,
                      const int64_t* position, float* dx) {
  add_rows<Real, false>(queue, "permute backward", shape, drows, position, nullptr, dx);
}

template <typename Real>
void unpermute_forward(CudaQueue& queue, const PermuteShape& shape, const Real* rows,
                       const int64_t* position, const float* weight, float* out) {
  add_rows<Real, true>(queue, "unpermute", shape, rows, position, weight, out);
}

template <typename Real>
void unpermute_backward(CudaQueue& queue, const PermuteShape& shape, const float* dout,
                        const Real* rows, const int64_t* position, const float* weight, Real* drows,
                        float* dweight) {
  constexpr int kCount = kPackCount<Real>;
  const bool packed = packable(shape.width, kCount, dout, rows, drows);
  launch(queue, "unpermute backward", blocks_for(shape.tokens * shape.top_k, kWarpsPerBlock),
         kBlockThreads,
         packed ? unpermute_backward_kernel<Real, kCount> : unpermute_backward_kernel<Real, 1>,
         shape, dout, rows, position, weight, drows, dweight);
}

template <typename Real>
void gather_rows(CudaQueue& queue, int64_t count, int64_t width, const int64_t* source,
                 const Real* from, Real* to) {
  copy_rows<Real, true>(queue, "gathering rows", count, width, source, from, to);
}

template <typename Real>
void scatter_rows(CudaQueue& queue, int64_t count, int64_t width, const int64_t* target,
                  const Real* from, Real* to) {
  copy_rows<Real, false>(queue, "scattering rows", count, width, target, from, to);
}

template void permute_forward<float>(CudaQueue&, const PermuteShape&, const float*, const int64_t*,
                                     float*);
template void permute_forward<Bf16>(CudaQueue&, const PermuteShape&, const Bf16*, const int64_t*,
                                    Bf16*);
template void permute_backward<float>(CudaQueue&, const PermuteShape&, const float*, const int64_t*,
                                      float*);
template void permute_backward<Bf16>(CudaQueue&, const PermuteShape&, const Bf16*, const int64_t*,
                                     float*);
template void unpermute_forward<float>(CudaQueue&, const PermuteShape&, const float*,
                                       const int64_t*, const float*, float*);
template void unpermute_forward<Bf16>(CudaQueue&, const PermuteShape&, const Bf16*, const int64_t*,
                                      const float*, float*);
template void unpermute_backward<float>(CudaQueue&, const PermuteShape&, const float*, const float*,
                                        const int64_t*, const float*, float*, float*);
template void unpermute_backward<Bf16>(CudaQueue&, const PermuteShape&, const float*, const Bf16*,
                                       const int64_t*, const float*, Bf16*, float*);
template void gather_rows<float>(CudaQueue&, int64_t, int64_t, const int64_t*, const float*,
                                 float*);
template void gather_rows<Bf16>(CudaQueue&, int64_t, int64_t, const int64_t*, const Bf16*, Bf16*);
template void scatter_rows<float>(CudaQueue&, int64_t, int64_t, const int64_t*, const float*,
                                  float*);
template void scatter_rows<Bf16>(CudaQueue&, int64_t, int64_t, const int64_t*, const Bf16*, Bf16*);

}  // namespace ckpt::kernels
