#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/embedding.h"

namespace ckpt::kernels {
namespace {

constexpr unsigned kBlockWarps = kBlockThreads / kWarpThreads;
// Independent loads that each thread keeps in flight.
constexpr int kTokensInFlight = 4;
constexpr int kRowsInFlight = 4;

__device__ unsigned block_thread() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ unsigned lane_index() { return threadIdx.x % kWarpThreads; }

// Threads: x along a slice of a row, y tokens. The blocks of one slice begin before those of the
// next (blockIdx.y), so rows that several tokens share are still in the L2 cache when they are read
// again: a slice of the table is small. The output bypasses the cache.
template <int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(int64_t count, int64_t width, const int32_t* __restrict__ tokens,
                   const float* __restrict__ table, float* __restrict__ out) {
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
  if (column >= width) return;
  const int64_t step = int64_t{blockDim.y} * width;
  for (int64_t first = int64_t{blockIdx.x} * kTokensInFlight * blockDim.y + threadIdx.y;
       first < count; first += kTokensInFlight * row_stride()) {
    const int64_t left = count - first;
    const auto is_token = [&](int j) { return j * blockDim.y < left; };
    Packed<float, kWidth> packs[kTokensInFlight];
#pragma unroll
    for (int j = 0; j < kTokensInFlight; ++j) {
      if (!is_token(j)) continue;
      const int32_t token = tokens[first + j * blockDim.y];
      packs[j] = load_packed<kWidth>(table + token * width + column);
    }
    float* to = out + first * width + column;
#pragma unroll
    for (int j = 0; j < kTokensInFlight; ++j, to += step) {
      if (is_token(j)) store_packed_once(to, packs[j]);
    }
  }
}

// Backward builds a list of positions for every token that occurs, then sums the rows of each list.
// Integer atomics allocate the lists, so the place and the order of a list differ from call to
// call. Each list is sorted before its rows are summed: the bits of the sums do not depend on
// either.
constexpr int32_t kShortMax = kWarpThreads;  // positions that a warp sorts in its registers

// A token that occurs, and its list.
struct alignas(16) List {
  int32_t token;
  int32_t first;  // in `position`
  int32_t count;
};
struct Lists {
  int32_t* count;     // [vocab], positions of every token
  int32_t* first;     // [vocab], where the list of a token that occurs begins
  int32_t* rank;      // [positions], place in its list
  int32_t* position;  // [positions], the lists
  int32_t* sorted;    // [positions], the lists again, ascending; the memory of `rank`
  List* list;         // [lists_max], short ones from the front, long ones from the back
  int32_t lists_max;
  int32_t* places;       // of `position` that are allocated
  int32_t* short_lists;  // count
  int32_t* long_lists;

  __device__ List short_list(int64_t i) const { return list[i]; }
  __device__ List long_list(int64_t i) const { return list[lists_max - 1 - i]; }
};

__global__ void __launch_bounds__(kBlockThreads)
    count_kernel(int64_t count, const int32_t* __restrict__ tokens, Lists lists) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    lists.rank[i] = atomicAdd(&lists.count[tokens[i]], 1);
  }
}

// Takes `amount` from the counter for each lane, and returns where the lane's share begins. All
// lanes call it.
__device__ int32_t take(int32_t* counter, int32_t amount) {
  int32_t up_to = amount;  // lanes up to this one
  for (unsigned distance = 1; distance < kWarpThreads; distance *= 2) {
    const int32_t below = __shfl_up_sync(~0u, up_to, distance);
    if (lane_index() >= distance) up_to += below;
  }
  constexpr unsigned kLast = kWarpThreads - 1;
  int32_t before = 0;
  if (lane_index() == kLast && up_to > 0) before = atomicAdd(counter, up_to);
  return __shfl_sync(~0u, before, kLast) + up_to - amount;
}

// The thread that counted a token first allocates the token's list.
__global__ void __launch_bounds__(kBlockThreads)
    take_kernel(int64_t count, const int32_t* __restrict__ tokens, Lists lists) {
  const int64_t step = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t block = int64_t{blockIdx.x} * kBlockThreads; block < count; block += step) {
    const int64_t i = block + threadIdx.x;
    const bool is_first = i < count && lists.rank[i] == 0;
    const int32_t token = is_first ? tokens[i] : 0;
    const int32_t size = is_first ? lists.count[token] : 0;
    const int32_t place = take(lists.places, size);
    if (is_first) lists.first[token] = place;
    const bool is_short = is_first && size <= kShortMax;
    const bool is_long = size > kShortMax;
    const int32_t from_front = take(lists.short_lists, is_short ? 1 : 0);
    if (is_short) lists.list[from_front] = {token, place, size};
    const int32_t from_back = take(lists.long_lists, is_long ? 1 : 0);
    if (is_long) lists.list[lists.lists_max - 1 - from_back] = {token, place, size};
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    fill_kernel(int64_t count, const int32_t* __restrict__ tokens, Lists lists) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    lists.position[lists.first[tokens[i]] + lists.rank[i]] = static_cast<int32_t>(i);
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

// A warp per short list.
__device__ void sort_short_lists(const Lists& lists) {
  const int32_t short_lists = *lists.short_lists;
  const auto step = static_cast<int32_t>(gridDim.x * kBlockWarps);
  for (auto which = static_cast<int32_t>(blockIdx.x * kBlockWarps + threadIdx.x / kWarpThreads);
       which < short_lists; which += step) {
    const auto [token, begin, count] = lists.short_list(which);
    const bool has_one = static_cast<int32_t>(lane_index()) < count;
    const int32_t position = has_one ? lists.position[begin + lane_index()] : 0;
    int32_t before = 0;
    for (int32_t i = 0; i < count; ++i) before += __shfl_sync(~0u, position, i) < position ? 1 : 0;
    if (has_one) lists.sorted[begin + before] = position;
  }
}

// One block per long list: sets a bit for each position, then lists the bits in order. Handles one
// window of positions at a time.
__global__ void __launch_bounds__(kBlockThreads) sort_kernel(Lists lists) {
  constexpr int kWordsEach = 8;  // of a thread
  constexpr int64_t kWindow = int64_t{kBlockThreads} * kWordsEach * 32;
  __shared__ uint32_t bits[kBlockThreads * kWordsEach];
  __shared__ int32_t sums[kBlockWarps];
  uint32_t* const words = bits + threadIdx.x * kWordsEach;
  for (int32_t which = static_cast<int32_t>(blockIdx.x); which < *lists.long_lists;
       which += static_cast<int32_t>(gridDim.x)) {
    const auto [token, begin, count] = lists.long_list(which);
    const int32_t* const position = lists.position + begin;
    int32_t* const sorted = lists.sorted + begin;
    int32_t done = 0;
    for (int64_t window = 0; done < count; window += kWindow) {
      for (int w = 0; w < kWordsEach; ++w) words[w] = 0;
      __syncthreads();
      for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kBlockThreads) {
        const int64_t at = position[i] - window;
        if (at >= 0 && at < kWindow) atomicOr(&bits[at / 32], 1u << at % 32);
      }
      __syncthreads();
      int32_t mine = 0;
      for (int w = 0; w < kWordsEach; ++w) mine += __popc(words[w]);
      const BlockScan scan = scan_block(mine, sums);
      int32_t* to = sorted + done + scan.before;
      const int64_t first = window + int64_t{threadIdx.x} * kWordsEach * 32;
      for (int w = 0; w < kWordsEach; ++w) {
        for (uint32_t rest = words[w]; rest != 0; rest &= rest - 1) {
          const int bit = __ffs(static_cast<int>(rest)) - 1;
          *to++ = static_cast<int32_t>(first + w * 32 + bit);
        }
      }
      done += scan.all;
    }
  }
  sort_short_lists(lists);
}

// Reads 16 bytes, bypassing the cache.
template <int kCount, typename T>
__device__ Packed<T, kCount> load_packed_once(const T* at) {
  if constexpr (sizeof(Packed<T, kCount>) == sizeof(uint4)) {
    return std::bit_cast<Packed<T, kCount>>(__ldcs(reinterpret_cast<const uint4*>(at)));
  } else {
    return load_packed<kCount>(at);
  }
}

// Adds the rows `position[i]`, `position[i + step]`, ... below `count`, in this order. `dout` and
// `sum` begin at the thread's column.
template <int kWidth>
__device__ void add_rows(const int32_t* position, int64_t begin, int32_t count, int step,
                         int64_t width, const float* dout, Packed<float, kWidth>& sum) {
#pragma unroll 1
  for (int64_t i = begin; i < count; i += kRowsInFlight * step) {
    Packed<float, kWidth> rows[kRowsInFlight];
#pragma unroll
    for (int j = 0; j < kRowsInFlight; ++j) {
      if (i + j * step < count)
        rows[j] = load_packed_once<kWidth>(dout + position[i + j * step] * width);
    }
#pragma unroll
    for (int j = 0; j < kRowsInFlight; ++j) {
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
  const int64_t step = int64_t{gridDim.x} * gridDim.y;
  for (int64_t item = int64_t{blockIdx.y} * gridDim.x + blockIdx.x; item < items; item += step) {
    const auto [token, begin, count] = lists.long_list(item / slices);
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

// Short lists: the blocks of a slice (blockIdx.y) take the lists in turn.
template <int kWidth>
__device__ void add_short_lists(int64_t width, const Lists& lists, const float* dout,
                                float* dtable) {
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
  if (column >= width) return;
  const int64_t short_lists = *lists.short_lists;
  for (int64_t i = first_row(); i < short_lists; i += row_stride()) {
    const auto [token, begin, count] = lists.short_list(i);
    float* const to = dtable + token * width + column;
    Packed<float, kWidth> result = load_packed_once<kWidth>(to);
    Packed<float, kWidth> sum{};
    add_rows<kWidth>(lists.sorted + begin, 0, count, 1, width, dout + column, sum);
    for (int c = 0; c < kWidth; ++c) result.values[c] += sum.values[c];
    store_packed_once(to, result);
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
  const int64_t lists_max = std::min(count, vocab);
  const int64_t integers = 3 + 2 * vocab + 2 * count;
  const auto bytes = static_cast<size_t>(lists_max) * sizeof(List) +
                     static_cast<size_t>(integers) * sizeof(int32_t);
  Lists lists{};
  lists.list = static_cast<List*>(queue.scratch(bytes));
  if (queue.failed()) return lists;
  lists.lists_max = static_cast<int32_t>(lists_max);
  lists.places = reinterpret_cast<int32_t*>(lists.list + lists_max);
  lists.short_lists = lists.places + 1;
  lists.long_lists = lists.places + 2;
  lists.count = lists.places + 3;
  lists.first = lists.count + vocab;
  lists.rank = lists.sorted = lists.first + vocab;
  lists.position = lists.rank + count;
  const size_t zeros = static_cast<size_t>(3 + vocab) * sizeof(int32_t);
  queue.note(cudaMemsetAsync(lists.places, 0, zeros, queue.stream()), name);
  const unsigned blocks = blocks_for(count, kBlockThreads);
  launch(queue, name, blocks, kBlockThreads, count_kernel, count, tokens, lists);
  launch(queue, name, blocks, kBlockThreads, take_kernel, count, tokens, lists);
  launch(queue, name, blocks, kBlockThreads, fill_kernel, count, tokens, lists);
  return lists;
}

template <int kWidth>
void add_lists(CudaQueue& queue, int64_t count, int64_t width, const Lists& lists,
               const float* dout, float* dtable) {
  const char* const name = "embedding backward";
  const int64_t long_max = count / (kShortMax + 1);
  launch(queue, name, std::max(blocks_for(long_max, 1), blocks_for(lists.lists_max, kBlockWarps)),
         kBlockThreads, sort_kernel, lists);
  const int64_t packs = width / kWidth;
  const dim3 block = launch_over_rows(1, packs).block;
  const int64_t slices = (packs + block.x - 1) / block.x;
  const dim3 grid(
      blocks_for(lists.lists_max, block.y, std::max<int64_t>(kGridBlocksMax / slices, 1)),
      static_cast<unsigned>(slices));
  launch(queue, name, grid, block, add_kernel<kWidth>, width, lists, dout, dtable);
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
  const dim3 grid(blocks_for(count, kTokensInFlight * rows),
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
  add(queue, count, width, lists, dout, dtable);
}

}  // namespace ckpt::kernels
