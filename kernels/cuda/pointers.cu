#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pointers.h"

namespace ckpt::kernels {
namespace {

// A launch's arguments are 4 KiB at most.
constexpr size_t kChunk = kBlockThreads;
struct Pointers {
  const void* at[kChunk];
};

__global__ void __launch_bounds__(kChunk)
    write_kernel(const __grid_constant__ Pointers pointers, unsigned count, void** to) {
  if (threadIdx.x < count) to[threadIdx.x] = const_cast<void*>(pointers.at[threadIdx.x]);
}

}  // namespace

void write_pointers(CudaQueue& queue, const char* name, std::span<const void* const> pointers,
                    void** to) {
  for (size_t first = 0; first < pointers.size(); first += kChunk) {
    const auto some = pointers.subspan(first, std::min(kChunk, pointers.size() - first));
    Pointers chunk{};
    std::copy(some.begin(), some.end(), chunk.at);
    launch(queue, name, 1, kChunk, write_kernel, chunk, static_cast<unsigned>(some.size()),
           to + first);
  }
}

}  // namespace ckpt::kernels
