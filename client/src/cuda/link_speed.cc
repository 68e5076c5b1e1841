#include "client/src/cuda/link_speed.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>

namespace ckpt::lib {

namespace {
constexpr uint64_t kMeasuredBytes = 16ull << 20;
constexpr uint64_t kChunkBytesMin = 16ull << 20;
constexpr double kChunkSecondsMin = 150e-6;
}  // namespace

Result<double> measure_link(kernels::CudaQueue& queue, std::byte* device, uint64_t device_bytes,
                            ByteView pinned) {
  const uint64_t bytes = std::min({kMeasuredBytes, device_bytes, uint64_t{pinned.size()}});
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {  // the first one warms up
    const auto begin = std::chrono::steady_clock::now();
    queue.note(
        cudaMemcpyAsync(device, pinned.data(), bytes, cudaMemcpyHostToDevice, queue.stream()),
        "measuring the link");
    CKPT_TRY(synchronize(queue));
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return static_cast<double>(bytes) / std::max(seconds, 1e-9);
}

uint64_t chunk_bytes_for(double bytes_per_second, uint64_t gather_bytes) {
  uint64_t chunk_bytes = kChunkBytesMin;
  while (static_cast<double>(chunk_bytes) < kChunkSecondsMin * bytes_per_second &&
         2 * chunk_bytes <= gather_bytes / 4) {
    chunk_bytes *= 2;
  }
  return chunk_bytes;
}

}  // namespace ckpt::lib
