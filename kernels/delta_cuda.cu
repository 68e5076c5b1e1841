#include "kernels/cuda/launch.h"
#include "kernels/delta.h"

namespace ckpt::kernels {
namespace {

constexpr int64_t kWordBytes = 16;
constexpr int64_t kBatch = 4;  // words that a thread has in flight
constexpr int64_t kWordsPerBatch = kBatch * kBlockThreads;

__device__ inline uint4 exclusive_or(const uint4& a, const uint4& b) {
  return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

// `to` may be a or b: all of a batch is read before any of it is written.
__global__ void __launch_bounds__(kBlockThreads)
    words_kernel(int64_t words, const uint4* a, const uint4* b, uint4* to) {
  const int64_t stride = kWordsPerBatch * gridDim.x;
  for (int64_t at = blockIdx.x * kWordsPerBatch + threadIdx.x; at < words; at += stride) {
    uint4 word[kBatch];
#pragma unroll
    for (int64_t i = 0; i < kBatch; ++i) {
      const int64_t here = at + i * kBlockThreads;
      if (here < words) word[i] = exclusive_or(a[here], b[here]);
    }
#pragma unroll
    for (int64_t i = 0; i < kBatch; ++i) {
      const int64_t here = at + i * kBlockThreads;
      if (here < words) to[here] = word[i];
    }
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    bytes_kernel(int64_t bytes, const std::byte* a, const std::byte* b, std::byte* to) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; at < bytes; at += stride) {
    to[at] = a[at] ^ b[at];
  }
}

int64_t misalignment(const std::byte* at) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) % kWordBytes);
}

}  // namespace

void delta(CudaQueue& queue, int64_t bytes, const std::byte* a, const std::byte* b, std::byte* to) {
  // Single bytes up to the first aligned one; all of them if the three are never aligned together.
  const int64_t off = misalignment(to);
  const bool together = misalignment(a) == off && misalignment(b) == off;
  const int64_t head = together ? std::min((kWordBytes - off) % kWordBytes, bytes) : bytes;
  const int64_t words = (bytes - head) / kWordBytes;
  const int64_t tail = head + words * kWordBytes;
  launch(queue, "delta", blocks_for(words, kWordsPerBatch), kBlockThreads, words_kernel, words,
         reinterpret_cast<const uint4*>(a + head), reinterpret_cast<const uint4*>(b + head),
         reinterpret_cast<uint4*>(to + head));
  launch(queue, "delta", blocks_for(head, kBlockThreads), kBlockThreads, bytes_kernel, head, a, b,
         to);
  launch(queue, "delta", blocks_for(bytes - tail, kBlockThreads), kBlockThreads, bytes_kernel,
         bytes - tail, a + tail, b + tail, to + tail);
}

}  // namespace ckpt::kernels
