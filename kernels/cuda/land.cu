#include "formats/base/assert.h"
#include "kernels/cuda/land.h"
#include "kernels/cuda/packed.h"

namespace ckpt::kernels {
namespace {

// Enough threads to keep the link busy, and few multiprocessors.
constexpr int64_t kBlocksMax = 16;

__global__ void __launch_bounds__(kBlockThreads)
    land_kernel(int64_t bytes, const std::byte* from, std::byte* to) {
  constexpr auto kWordBytes = static_cast<int64_t>(sizeof(uint4));
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t words = bytes / kWordBytes;
  for (int64_t at = first; at < words; at += step) {
    reinterpret_cast<uint4*>(to)[at] = reinterpret_cast<const uint4*>(from)[at];
  }
  for (int64_t at = words * kWordBytes + first; at < bytes; at += step) to[at] = from[at];
}

}  // namespace

void land(CudaQueue& queue, void* to, const void* from, size_t bytes) {
  const auto* const source = static_cast<const std::byte*>(from);
  auto* const target = static_cast<std::byte*>(to);
  CKPT_ASSERT(packable(/*width=*/1, /*count=*/1, source, target));
  const auto count = static_cast<int64_t>(bytes);
  const auto per_block = static_cast<int64_t>(kBlockThreads * sizeof(uint4));
  launch(queue, "landing", blocks_for(count, per_block, kBlocksMax), kBlockThreads, land_kernel,
         count, source, target);
}

}  // namespace ckpt::kernels
