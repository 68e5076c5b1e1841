#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/embedding.h"

namespace ckpt::kernels {
namespace {

constexpr unsigned kBlockWarps = kBlockThreads / kWarpThreads;
constexpr int kInFlight = 4;  // loads of a thread that do not wait for each other

__device__ unsigned block_thread() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ unsigned lane_index() { return threadIdx.x % kWarpThreads; }

// Threads: x along a slice of a row, y tokens. The blocks of one slice begin before those of the
// next (blockIdx.y), so rows that several tokens share are still in the L2 cache when they are read
// again: a slice of the table is small. The output goes past the cache.
template <int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(int64_t count, int64_t width, const int32_t* __restrict__ tokens,
                   const float* __restrict__ table, float* __restrict__ out) {
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
  if (column >= width) return;
  for (int64_t first = int64_t{blockIdx.x} * kInFlight * blockDim.y + threadIdx.y; first < count;
       first += kInFlight * row_stride()) {
    Packed<float, kWidth> packs[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const int64_t i = first + j * int64_t{blockDim.y};
      if (i < count) packs[j] = load_packed<kWidth>(table + int64_t{tokens[i]} * width + column);
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const int64_t i = first + j * int64_t{blockDim.y};
      if (i < count) store_packed_once(out + i * width + column, packs[j]);
    }
  }
}

// Backward makes a list of positions for every token that occurs, then adds up the rows of each
// list. Atomics on integers deal out places, so the order of a list may differ from call to call.
// Each list is sorted before its rows are added: the bits of the sums do not depend on the order.
// Few launches: a launch costs as much time as moving 5 MB.
constexpr int kPositionsEach = 2;                             // of a lane
constexpr int32_t kShortMax = kPositionsEach * kWarpThreads;  // positions that a warp sorts

// A long list: more than kShortMax positions.
struct LongList {
  int32_t token;
  int32_t first;  // in `sorted`
};
struct Lists {
  int32_t* short_positions;  // [vocab][kShortMax], unsorted
  int32_t* count;            // [vocab], positions of every token
  int32_t* occurring;        // [lists_max], the tokens that occur
  LongList* longs;           // [long_max]
  int32_t* sorted;           // [positions], of long lists, ascending
  int32_t* lists;            // how many tokens occur
  int32_t* long_lists;       // how many lists are long
  int32_t* places;           // of `sorted` that were dealt out
};

__global__ void __launch_bounds__(kBlockThreads)
    count_kernel(int64_t count, const int32_t* __restrict__ tokens, Lists lists) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const int32_t token = tokens[i];
    const int32_t rank = atomicAdd(&lists.count[token], 1);
    if (rank == 0) lists.occurring[atomicAdd(lists.lists, 1)] = token;
    if (rank == kShortMax) lists.longs[atomicAdd(lists.long_lists, 1)].token = token;
    if (rank < kShortMax) {
      lists.short_positions[int64_t{token} * kShortMax + rank] = static_cast<int32_t>(i);
    }
  }
}

// The sum over the threads of the block before this one, and over all of them.
struct BlockScan {
  int32_t before;
  int32_t all;
};
__device__ BlockScan scan_block(int32_t value, int32_t (&shared)[kBlockWarps]) {
  int32_t up_to = value;
  for (unsigned distance = 1; distance < kWarpThreads; distance *= 2) {
    const int32_t below = __shfl_up_sync(~0u, up_to, distance);
    if (lane_index() >= distance) up_to += below;
  }
  const unsigned warp = threadIdx.x / kWarpThreads;
  if (lane_index() == kWarpThreads - 1) shared[warp] = up_to;
  __syncthreads();
  BlockScan scan{up_to - value, 0};
  for (unsigned other = 0; other < kBlockWarps; ++other) {
    if (other < warp) scan.before += shared[other];
    scan.all += shared[other];
  }
  __syncthreads();
  return scan;
}

// A block per long list: it looks for the token among all tokens, in order. Long lists are few, and
// reading all tokens costs as much as a few rows.
__global__ void __launch_bounds__(kBlockThreads)
    sort_kernel(int64_t count, const int32_t* __restrict__ tokens, Lists lists) {
  constexpr int kTokensEach = 16;  // of a thread, next to each other
  __shared__ int32_t sums[kBlockWarps];
  __shared__ int32_t place;
  for (int32_t which = static_cast<int32_t>(blockIdx.x); which < *lists.long_lists;
       which += static_cast<int32_t>(gridDim.x)) {
    const int32_t token = lists.longs[which].token;
    if (threadIdx.x == 0) {
      lists.longs[which].first = place = atomicAdd(lists.places, lists.count[token]);
    }
    __syncthreads();
    int32_t* to = lists.sorted + place;
    for (int64_t window = 0; window < count; window += int64_t{kBlockThreads} * kTokensEach) {
      const int64_t first = window + int64_t{threadIdx.x} * kTokensEach;
      uint32_t found = 0;
#pragma unroll
      for (int i = 0; i < kTokensEach; ++i) {
        if (first + i < count && tokens[first + i] == token) found |= 1u << i;
      }
      const BlockScan scan = scan_block(__popc(found), sums);
      for (int32_t* at = to + scan.before; found != 0; found &= found - 1) {
        *at++ = static_cast<int32_t>(first) + __ffs(static_cast<int>(found)) - 1;
      }
      to += scan.all;
    }
    __syncthreads();  // `place` is read until here
  }
}

// Adds the rows `position[i]`, `position[i + step]`, ... below `count`, in this order. `dout` and
// `sum` begin at the thread's column.
template <int kWidth>
__device__ void add_rows(const int32_t* position, int64_t begin, int32_t count, int step,
                         int64_t width, const float* dout, Packed<float, kWidth>& sum) {
#pragma unroll 1
  for (int64_t i = begin; i < count; i += kInFlight * step) {
    Packed<float, kWidth> rows[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      if (i + j * step < count)
        rows[j] = load_packed<kWidth>(dout + position[i + j * step] * width);
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      if (i + j * step >= count) break;
      for (int c = 0; c < kWidth; ++c) sum.values[c] += rows[j].values[c];
    }
  }
}

// Long lists: a block per token and slice of 32 packs. Warp w adds up the rows w, w + 8, ... of the
// list; the warps' sums are added in order.
template <int kWidth>
__device__ void add_long_lists(int64_t width, const Lists& lists, const float* dout,
                               float* dtable) {
  constexpr int64_t kSlice = int64_t{kWarpThreads} * kWidth;
  __shared__ float parts[kBlockWarps][kSlice];
  const unsigned thread = block_thread();
  const unsigned warp = thread / kWarpThreads;
  const int64_t slices = (width + kSlice - 1) / kSlice;
  const int64_t items = *lists.long_lists * slices;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const auto [token, begin] = lists.longs[item / slices];
    const int32_t count = lists.count[token];
    const int64_t slice = item % slices * kSlice;
    const int64_t column = slice + lane_index() * kWidth;
    Packed<float, kWidth> sum{};
    if (column < width) {
      add_rows<kWidth>(lists.sorted + begin, warp, count, kBlockWarps, width, dout + column, sum);
    }
    for (int c = 0; c < kWidth; ++c) parts[warp][lane_index() * kWidth + c] = sum.values[c];
    __syncthreads();
    if (thread < kSlice && slice + thread < width) {
      float total = 0;
      for (unsigned other = 0; other < kBlockWarps; ++other) total += parts[other][thread];
      dtable[token * width + slice + thread] += total;
    }
    __syncthreads();
  }
}

// Positions of a short list in ascending order, into shared memory of the warp.
__device__ void sort_short_list(const int32_t* positions, int32_t count, int32_t* sorted) {
  constexpr int kLanes = static_cast<int>(kWarpThreads);
  const int lane = static_cast<int>(lane_index());
  int32_t mine[kPositionsEach];
  int32_t before[kPositionsEach] = {};
#pragma unroll
  for (int e = 0; e < kPositionsEach; ++e) {
    const bool has_one = e * kLanes + lane < count;
    mine[e] = has_one ? positions[e * kLanes + lane] : std::numeric_limits<int32_t>::max();
  }
#pragma unroll
  for (int from = 0; from < kPositionsEach; ++from) {
    const int32_t there = std::min(count - from * kLanes, kLanes);
    for (int32_t i = 0; i < there; ++i) {
      const int32_t other = __shfl_sync(~0u, mine[from], i);
      for (int e = 0; e < kPositionsEach; ++e) before[e] += other < mine[e] ? 1 : 0;
    }
  }
#pragma unroll
  for (int e = 0; e < kPositionsEach; ++e) {
    if (e * kLanes + lane < count) sorted[before[e]] = mine[e];
  }
}

// Short lists: every warp sorts its token's list for itself, and then adds up all rows of it.
template <int kWidth>
__device__ void add_short_lists(int64_t width, const Lists& lists, const float* dout,
                                float* dtable) {
  __shared__ int32_t sorted[kBlockWarps][kShortMax];
  int32_t* const list = sorted[block_thread() / kWarpThreads];
  const int64_t across = int64_t{blockDim.x} * kWidth;
  const int64_t slices = (width + across - 1) / across;
  const int64_t items = *lists.lists * slices;
  for (int64_t item = first_row(); item < items; item += row_stride()) {
    const int64_t token = lists.occurring[item / slices];
    const int32_t count = lists.count[token];
    if (count > kShortMax) continue;
    const int64_t column = item % slices * across + int64_t{threadIdx.x} * kWidth;
    float* const to = dtable + token * width + column;
    Packed<float, kWidth> result{};
    if (column < width) result = load_packed<kWidth>(to);
    sort_short_list(lists.short_positions + token * kShortMax, count, list);
    __syncwarp();
    if (column < width) {
      Packed<float, kWidth> sum{};
      add_rows<kWidth>(list, 0, count, 1, width, dout + column, sum);
      for (int c = 0; c < kWidth; ++c) result.values[c] += sum.values[c];
      store_packed(to, result);
    }
    __syncwarp();
  }
}

// Threads: x along a row, in whole warps, y tokens.
template <int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    add_kernel(int64_t width, Lists lists, const float* __restrict__ dout,
               float* __restrict__ dtable) {
  add_long_lists<kWidth>(width, lists, dout, dtable);
  add_short_lists<kWidth>(width, lists, dout, dtable);
}

Lists make_lists(CudaQueue& queue, int64_t count, int64_t vocab, const int32_t* tokens) {
  const char* const name = "embedding backward";
  const int64_t long_max = count / (kShortMax + 1);
  const int64_t zeros = vocab + 3;
  const int64_t integers =
      vocab * kShortMax + zeros + std::min(count, vocab) + 2 * long_max + count;
  Lists lists{};
  auto* const memory =
      static_cast<int32_t*>(queue.scratch(static_cast<size_t>(integers) * sizeof(int32_t)));
  if (queue.failed()) return lists;
  lists.short_positions = memory;
  lists.count = memory + vocab * kShortMax;
  lists.lists = lists.count + vocab;
  lists.long_lists = lists.lists + 1;
  lists.places = lists.lists + 2;
  lists.occurring = lists.lists + 3;
  lists.sorted = lists.occurring + std::min(count, vocab);
  lists.longs = reinterpret_cast<LongList*>(lists.sorted + count);
  const size_t zero_bytes = static_cast<size_t>(zeros) * sizeof(int32_t);
  queue.note(cudaMemsetAsync(lists.count, 0, zero_bytes, queue.stream()), name);
  launch(queue, name, blocks_for(count, kBlockThreads), kBlockThreads, count_kernel, count, tokens,
         lists);
  launch(queue, name, blocks_for(long_max, 1), kBlockThreads, sort_kernel, count, tokens, lists);
  return lists;
}

template <int kWidth>
void add_lists(CudaQueue& queue, int64_t count, int64_t vocab, int64_t width, const Lists& lists,
               const float* dout, float* dtable) {
  // A block per list and slice, up to a bound: lists differ in length, and the last blocks to end
  // should be short.
  constexpr int64_t kAddBlocksMax = 4 * kGridBlocksMax;
  const int64_t packs = width / kWidth;
  const dim3 block = launch_over_rows(1, packs).block;
  const int64_t slices = (packs + block.x - 1) / block.x;
  const unsigned blocks = blocks_for(std::min(count, vocab) * slices, block.y, kAddBlocksMax);
  launch(queue, "embedding backward", blocks, block, add_kernel<kWidth>, width, lists, dout,
         dtable);
}

}  // namespace

void embedding_forward(CudaQueue& queue, int64_t count, int64_t width, const int32_t* tokens,
                       const float* table, float* out) {
  if (width == 0) return;
  constexpr int kPack = kPackCount<float>;
  const bool packed = packable(width, kPack, table, out);
  const int64_t packs = packed ? width / kPack : width;
  const int64_t along = std::min<int64_t>(packs, kBlockThreads);
  const int64_t rows = kBlockThreads / along;
  const dim3 block(static_cast<unsigned>(along), static_cast<unsigned>(rows));
  const dim3 grid(blocks_for(count, kInFlight * rows),
                  static_cast<unsigned>((packs + along - 1) / along));
  launch(queue, "embedding", grid, block, packed ? forward_kernel<kPack> : forward_kernel<1>, count,
         width, tokens, table, out);
}

void embedding_backward(CudaQueue& queue, int64_t count, int64_t width, int64_t vocab,
                        const int32_t* tokens, const float* dout, float* dtable) {
  if (count == 0 || width == 0) return;
  const Lists lists = make_lists(queue, count, vocab, tokens);
  constexpr int kPack = kPackCount<float>;
  const bool packs = packable(width, kPack, dout, dtable);
  const auto add = packs ? add_lists<kPack> : add_lists<1>;
  add(queue, count, vocab, width, lists, dout, dtable);
}

}  // namespace ckpt::kernels
