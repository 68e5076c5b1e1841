#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/embedding.h"

namespace ckpt::kernels {
namespace {

constexpr unsigned kBlockWarps = kBlockThreads / kWarpThreads;

// Threads: x along a row, y tokens.
template <int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(int64_t count, int64_t width, const int32_t* tokens, const float* table,
                   float* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.y;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; i < count; i += step) {
    const float* from = table + int64_t{tokens[i]} * width;
    for (int64_t j = int64_t{threadIdx.x} * kWidth; j < width; j += int64_t{blockDim.x} * kWidth) {
      store_packed(out + i * width + j, load_packed<kWidth>(from + j));
    }
  }
}

// Backward makes a list of positions for every token, then adds up the rows of each list: work is
// proportional to the rows there are, and a frequent token's are shared out among warps.
struct Lists {
  int32_t* count;     // [vocab], of every token
  int32_t* first;     // [vocab], where its list begins in position
  int32_t* position;  // [tokens]
  int32_t* end;       // of the lists made so far
};

// Sums of integers: the same in any order.
__global__ void __launch_bounds__(kBlockThreads)
    count_kernel(int64_t count, const int32_t* tokens, int32_t* counts) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    atomicAdd(&counts[tokens[i]], 1);
  }
}

// A warp per token of the vocabulary walks all positions, 32 at a time and several of these in
// flight. Lists lie in any order, but each is ascending: where it lies does not change a bit.
__global__ void __launch_bounds__(kBlockThreads)
    list_kernel(int64_t vocab, int64_t count, const int32_t* tokens, Lists lists) {
  constexpr int kInFlight = 4;
  const unsigned lane = threadIdx.x % kWarpThreads;
  const unsigned lanes_below = (1u << lane) - 1;
  const int64_t step = int64_t{gridDim.x} * kBlockWarps;
  for (int64_t token = int64_t{blockIdx.x} * kBlockWarps + threadIdx.x / kWarpThreads;
       token < vocab; token += step) {
    const int32_t wanted = lists.count[token];
    if (wanted == 0) continue;
    int32_t first = 0;
    if (lane == 0) lists.first[token] = first = atomicAdd(lists.end, wanted);
    first = __shfl_sync(~0u, first, 0);
    int32_t found = 0;
    for (int64_t i = lane; found < wanted; i += int64_t{kInFlight} * kWarpThreads) {
      bool here[kInFlight];
      for (int j = 0; j < kInFlight; ++j) {
        const int64_t at = i + int64_t{j} * kWarpThreads;
        here[j] = at < count && tokens[at] == token;
      }
      for (int j = 0; j < kInFlight; ++j) {
        const unsigned votes = __ballot_sync(~0u, here[j]);
        if (here[j]) {
          lists.position[first + found + __popc(votes & lanes_below)] =
              static_cast<int32_t>(i + int64_t{j} * kWarpThreads);
        }
        found += __popc(votes);
      }
    }
  }
}

// A block per token of the vocabulary and slice of 32 packs. Warp w adds up the rows w, w + 8, ...
// of the list; the warps' sums are added in order.
template <int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    add_kernel(int64_t vocab, int64_t width, Lists lists, const float* dout, float* dtable) {
  constexpr unsigned kSlice = kWarpThreads * kWidth;
  __shared__ float parts[kBlockWarps][kSlice];
  const unsigned warp = threadIdx.x / kWarpThreads;
  const unsigned lane = threadIdx.x % kWarpThreads;
  const int64_t slice = int64_t{blockIdx.y} * kSlice;
  const int64_t column = slice + lane * kWidth;
  for (int64_t token = blockIdx.x; token < vocab; token += gridDim.x) {
    const int32_t count = lists.count[token];
    if (count == 0) continue;
    const int32_t* const position = lists.position + lists.first[token];
    float sum[kWidth] = {};
    if (column < width) {
      for (int64_t i = warp; i < count; i += kBlockWarps) {
        const auto row = load_packed<kWidth>(dout + position[i] * width + column);
        for (int j = 0; j < kWidth; ++j) sum[j] += row.values[j];
      }
    }
    for (int j = 0; j < kWidth; ++j) parts[warp][lane * kWidth + j] = sum[j];
    __syncthreads();
    if (threadIdx.x < kSlice && slice + threadIdx.x < width) {
      float total = 0;
      for (unsigned other = 0; other < kBlockWarps; ++other) total += parts[other][threadIdx.x];
      dtable[token * width + slice + threadIdx.x] += total;
    }
    __syncthreads();
  }
}

Lists make_lists(CudaQueue& queue, int64_t count, int64_t vocab, const int32_t* tokens) {
  const auto integers = static_cast<size_t>(2 * vocab + 1 + count);
  auto* const memory = static_cast<int32_t*>(queue.scratch(integers * sizeof(int32_t)));
  const Lists lists{.count = memory,
                    .first = memory + vocab + 1,
                    .position = memory + 2 * vocab + 1,
                    .end = memory + vocab};
  queue.note(
      cudaMemsetAsync(memory, 0, static_cast<size_t>(vocab + 1) * sizeof(int32_t), queue.stream()),
      "embedding backward");
  launch(queue, "embedding backward", blocks_for(count, kBlockThreads), kBlockThreads, count_kernel,
         count, tokens, lists.count);
  launch(queue, "embedding backward", blocks_for(vocab, kBlockWarps), kBlockThreads, list_kernel,
         vocab, count, tokens, lists);
  return lists;
}

}  // namespace

void embedding_forward(CudaQueue& queue, int64_t count, int64_t width, const int32_t* tokens,
                       const float* table, float* out) {
  if (width == 0) return;
  const bool packs = packable(width, kPackCount<float>, table, out);
  const int64_t accesses = packs ? width / kPackCount<float> : width;
  const int64_t along = std::min<int64_t>(accesses, kBlockThreads);
  const int64_t rows = kBlockThreads / along;
  launch(queue, "embedding", blocks_for(count, rows),
         dim3(static_cast<unsigned>(along), static_cast<unsigned>(rows)),
         packs ? forward_kernel<kPackCount<float>> : forward_kernel<1>, count, width, tokens, table,
         out);
}

void embedding_backward(CudaQueue& queue, int64_t count, int64_t width, int64_t vocab,
                        const int32_t* tokens, const float* dout, float* dtable) {
  if (count == 0 || width == 0) return;
  const Lists lists = make_lists(queue, count, vocab, tokens);
  const bool packs = packable(width, kPackCount<float>, dout, dtable);
  const int64_t slice = int64_t{kWarpThreads} * (packs ? kPackCount<float> : 1);
  const int64_t slices = (width + slice - 1) / slice;
  const dim3 grid(blocks_for(vocab, 1, std::max<int64_t>(kGridBlocksMax / slices, 1)),
                  static_cast<unsigned>(slices));
  launch(queue, "embedding backward", grid, kBlockThreads,
         packs ? add_kernel<kPackCount<float>> : add_kernel<1>, vocab, width, lists, dout, dtable);
}

}  // namespace ckpt::kernels
