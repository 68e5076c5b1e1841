// Kernel launches, and reductions over a warp or a block, shared by the .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

inline constexpr unsigned kWarpThreads = 32;
inline constexpr unsigned kBlockThreads = 256;
// Enough blocks to fill any device; kernels that walk their input in strides launch no more.
inline constexpr unsigned kGridBlocksMax = 2048;

// Blocks for `count` pieces of work of which each block does `per_block` at a time. 0 for none:
// launch() does nothing then.
inline unsigned blocks_for(int64_t count, int64_t per_block, int64_t blocks_max = kGridBlocksMax) {
  return static_cast<unsigned>(std::min((count + per_block - 1) / per_block, blocks_max));
}

// Queues a launch. The queue's next synchronize() reports a failure.
template <typename... Parameters, typename... Arguments>
void launch(CudaQueue& queue, const char* name, dim3 grid, dim3 block,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || queue.failed()) return;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = queue.stream();
  queue.note(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
}

// The sum of `value` over the warp, the same bits in every lane.
template <typename T>
__device__ inline T warp_sum(T value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

__device__ inline float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}

// The sum over a block of kThreads threads, the same bits in every thread, in a fixed order. All
// threads call it. `shared` may not be reused until the block has passed a barrier.
template <unsigned kThreads, typename T>
__device__ inline T block_sum(T value, T (&shared)[kThreads / kWarpThreads]) {
  value = warp_sum(value);
  if (threadIdx.x % kWarpThreads == 0) shared[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  T total = shared[0];
  for (unsigned warp = 1; warp < kThreads / kWarpThreads; ++warp) total += shared[warp];
  __syncthreads();
  return total;
}

template <unsigned kThreads>
__device__ inline float block_max(float value, float (&shared)[kThreads / kWarpThreads]) {
  value = warp_max(value);
  if (threadIdx.x % kWarpThreads == 0) shared[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  float most = shared[0];
  for (unsigned warp = 1; warp < kThreads / kWarpThreads; ++warp) most = fmaxf(most, shared[warp]);
  __syncthreads();
  return most;
}

}  // namespace ckpt::kernels
