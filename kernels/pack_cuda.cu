// A range is cut into tiles of equal size, independently of its pieces. A block moves a tile and
// computes its CRC on the way; a second kernel combines the CRCs of a range's tiles.
#include <algorithm>
#include <limits>
#include <vector>

#include "formats/base/assert.h"
#include "kernels/cuda/crc32c.h"
#include "kernels/cuda/pack_tables.h"
#include "kernels/cuda/pack_tiles.h"

namespace ckpt::kernels {
namespace {

using pack_tables::kTileBytes;
using pack_tables::Range;
using pack_tables::Tables;
using pack_tables::tables_of;
using pack_tables::Tile;
using pack_tiles::Cursor;
using pack_tiles::Gather;
using pack_tiles::kNearPieces;
using pack_tiles::kStep;
using pack_tiles::kWordBytes;
using pack_tiles::load_word;
using pack_tiles::move_word;
using pack_tiles::NearPiece;
using pack_tiles::read_word;
using pack_tiles::Scatter;
using pack_tiles::store_word;
using pack_tiles::visit_parts;
using pack_tiles::Words;
using pack_tiles::words_of;

static_assert(kWordBytes == kCrcWordBytes);

constexpr int kBatch = 4;  // words that a thread has in flight
// Launch bounds: blocks that a multiprocessor must have room for, which limits the registers of a
// thread. Unused on the emulated device, which has no launch bounds.
[[maybe_unused]] constexpr unsigned kGatherBlocks = 4;
[[maybe_unused]] constexpr unsigned kScatterBlocks = 6;
constexpr int kWarps = kBlockThreads / kWarpThreads;

__device__ constexpr FieldTable kByRow = field_table(polynomial::shift_by_bytes(kCrcRowBytes));
__device__ constexpr FieldTable kByQuarter = field_table(polynomial::shift_by_bytes(4));
__device__ constexpr FieldTable kByRound =
    field_table(polynomial::shift_by_bytes(kTileBytes * kWarpThreads));
__device__ constexpr auto kWordWeights = weights_of<kBlockThreads>(kCrcWordBytes);
__device__ constexpr auto kTileWeights = weights_of<kWarpThreads>(kTileBytes);
__device__ constexpr ZerosTaken kZerosTaken = zeros_taken();
__device__ constexpr ByteShifts kByteShifts = byte_shifts();

// --- kernels ---------------------------------------------------------------------------------

// A thread's words of a tile, from number `at` on, and the CRC's states over them.
struct Gathering {
  int at;
  CrcStates states = {};

  // Takes the words up to `end`. Each of them lies within one piece, or in none.
  template <bool kMoves>
  __device__ void take_aligned(const FieldTable& by_row, const Words& words, Cursor& cursor,
                               int end) {
    for (; at < end; at += kBatch * kStep) {
      uint4 word[kBatch];
      unsigned moved = 0;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int here = (at + i * kStep) * kWordBytes;
        if (at + i * kStep >= end) break;
        const std::byte* from = words.first + here;
        if (kMoves) {
          cursor.go_to(here);
          const NearPiece& piece = cursor.piece();
          if (piece.begin <= here) {
            from = piece.outside(here);
            moved |= 1u << i;
          }
        }
        word[i] = load_word(from);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if ((moved >> i & 1) != 0) {
          store_word(words.first + (at + i * kStep) * kWordBytes, word[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (at + i * kStep < end) states.add(by_row, word[i]);
      }
    }
    while (at - kStep >= end) at -= kStep;
  }
  // Takes the words up to `end`, which may lie in several pieces.
  template <bool kMoves>
  __device__ void take_any(const FieldTable& by_row, const Words& words, Cursor& cursor, int end) {
    for (; at < end; at += kStep) {
      states.add(by_row, kMoves ? move_word<Gather>(words, cursor, at * kWordBytes)
                                : read_word(words, at * kWordBytes));
    }
  }
};

// tile_crc[tile]: the raw state of the tile's bytes, from 0. Without kMoves the buffer is only
// read. There are no more blocks than tiles.
template <bool kMoves>
__global__ void __launch_bounds__(kBlockThreads, kGatherBlocks)
    gather_kernel(Tables tables, uint32_t* tile_crc) {
  __shared__ FieldTable by_row;
  __shared__ FieldTable by_quarter;
  __shared__ NearPiece near[kNearPieces];
  __shared__ uint32_t shared[kWarps];
  Tile tile = tables.tiles[blockIdx.x];
  fill(by_row, kByRow);
  fill(by_quarter, kByQuarter);
  for (int64_t index = blockIdx.x;;) {
    const Words words = words_of(tables, tile);
    // The last thread takes the last word.
    const int missing = (kStep - words.count % kStep) % kStep;
    Gathering mine{(static_cast<int>(threadIdx.x) - missing + kStep) % kStep};
    if (!kMoves) tile.pieces = 0;
    visit_parts(tables, tile, words, near, [&](Cursor cursor, int end, bool all_aligned) {
      if (all_aligned) {
        mine.take_aligned<kMoves>(by_row, words, cursor, end);
      } else {
        mine.take_any<kMoves>(by_row, words, cursor, end);
      }
    });
    const uint32_t state = block_state(mine.states.together(by_quarter), kWordWeights, shared);
    if (threadIdx.x == 0) {
      const int zeros = words.count * kWordBytes - words.end;  // appended to the tile's bytes
      tile_crc[index] = zeros == 0 ? state : polynomial::multiply(kZerosTaken.factor[zeros], state);
    }
    index += gridDim.x;
    if (index >= tables.tile_count) return;
    tile = tables.tiles[index];
  }
}

// A warp per range. Tiles but the last end kTileBytes apart, however long the first is.
__global__ void __launch_bounds__(kBlockThreads)
    range_kernel(Tables tables, const uint32_t* tile_crc, uint32_t* crc) {
  __shared__ FieldTable by_round;
  fill(by_round, kByRound);
  __syncthreads();
  const int lane = threadIdx.x % kWarpThreads;
  for (int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
       index < tables.range_count; index += int64_t{gridDim.x} * kWarps) {
    const Range range = tables.ranges[index];
    if (range.tiles == 0) {
      if (lane == 0) crc[index] = 0;
      continue;
    }
    const uint32_t* const tile = tile_crc + range.first_tile;
    const int64_t but_last = range.tiles - 1;
    const int64_t last_begin = tables.tiles[range.first_tile + but_last].begin;
    uint32_t state = ~0u;  // before the first byte
    if (but_last > 0) {
      uint32_t sum = 0;
      const int64_t rounds = (but_last + kWarpThreads - 1) / kWarpThreads;
#pragma unroll 4
      for (int64_t at = lane + but_last - rounds * kWarpThreads; at < but_last;
           at += kWarpThreads) {
        sum = times(by_round, sum) ^ (at >= 0 ? tile[at] : 0);
      }
      sum = warp_xor(polynomial::multiply(kTileWeights.thread[lane], sum));
      const auto bytes = static_cast<uint64_t>(last_begin - range.begin);
      state = polynomial::multiply(shift_by(kByteShifts, bytes), state) ^ sum;
    }
    const auto bytes = static_cast<uint64_t>(range.end - last_begin);
    state = polynomial::multiply(shift_by(kByteShifts, bytes), state) ^ tile[but_last];
    if (lane == 0) crc[index] = ~state;
  }
}

// Counts the ranges whose CRC is not the expected one. One block runs it.
__device__ void count_mismatches(const Tables& tables, const uint32_t* crc, uint32_t* mismatches) {
  __shared__ uint32_t shared[kWarps];
  uint32_t count = 0;
  for (int64_t i = threadIdx.x; i < tables.range_count; i += kBlockThreads) {
    if (crc[i] != tables.expected[i]) ++count;
  }
  count = block_sum<kBlockThreads>(count, shared);
  if (threadIdx.x == 0) *mismatches = count;
}

// The words of one part that a thread moves out of the buffer, from number `at` on, up to `end`;
// each lies within one piece, or in none.
__device__ void scatter_aligned(const Words& words, Cursor& cursor, int& at, int end) {
  for (; at < end; at += kBatch * kStep) {
    uint4 word[kBatch];
    std::byte* to[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int here = (at + i * kStep) * kWordBytes;
      to[i] = nullptr;
      if (at + i * kStep >= end) continue;
      cursor.go_to(here);
      const NearPiece& piece = cursor.piece();
      if (piece.begin > here) continue;
      to[i] = piece.outside(here);
      word[i] = load_word(words.first + here);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (to[i] != nullptr) store_word(to[i], word[i]);
    }
  }
  while (at - kStep >= end) at -= kStep;
}

// The first block, which exists even without tiles, also counts the mismatches. Tiles go from the
// last to the first: the end of a buffer larger than the cache was read last.
__global__ void __launch_bounds__(kBlockThreads, kScatterBlocks)
    scatter_kernel(Tables tables, const uint32_t* crc, uint32_t* mismatches) {
  __shared__ NearPiece near[kNearPieces];
  if (blockIdx.x == 0) count_mismatches(tables, crc, mismatches);
  for (int64_t index = tables.tile_count - 1 - blockIdx.x; index >= 0; index -= gridDim.x) {
    const Tile tile = tables.tiles[index];
    if (tile.pieces == 0 || crc[tile.range] != tables.expected[tile.range]) continue;
    const Words words = words_of(tables, tile);
    int at = static_cast<int>(threadIdx.x);
    visit_parts(tables, tile, words, near, [&](Cursor cursor, int end, bool all_aligned) {
      if (all_aligned) {
        scatter_aligned(words, cursor, at, end);
      } else {
        for (; at < end; at += kStep) {
          move_word<Scatter>(words, cursor, at * kWordBytes);
        }
      }
    });
  }
}

// --- host ------------------------------------------------------------------------------------

// Device state that a call needs besides its arguments.
struct Prepared {
  Tables tables;
  uint32_t* tile_crc;
};

// Plans with `plan` on the host and uploads the tables to scratch memory, valid for this call.
template <typename Plan>
Prepared prepare(CudaQueue& queue, size_t table_bytes, std::byte* buffer, const Plan& plan) {
  std::vector<std::byte> tables(table_bytes);
  const PlannedPack planned = plan(tables);
  const size_t tile_crc_at = planned.table_bytes;
  auto* const at = static_cast<std::byte*>(
      queue.scratch(tile_crc_at + static_cast<size_t>(planned.tiles) * sizeof(uint32_t)));
  queue.upload(at, tables.data(), planned.table_bytes);
  return {tables_of(planned, at, buffer), reinterpret_cast<uint32_t*>(at + tile_crc_at)};
}

Prepared on_device(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables,
                   std::byte* buffer) {
  CKPT_ASSERT(reinterpret_cast<uintptr_t>(buffer) % kPackBufferAlignment == 0);
  void* const tile_crc = queue.scratch(static_cast<size_t>(planned.tiles) * sizeof(uint32_t));
  return {tables_of(planned, tables, buffer), static_cast<uint32_t*>(tile_crc)};
}

uint64_t total_bytes(std::span<const PackRange> ranges) {
  uint64_t bytes = 0;
  for (const PackRange& range : ranges) bytes += range.bytes;
  return bytes;
}

// Without a limit a block does one tile: the device starts blocks as multiprocessors become free,
// and none waits for the slowest.
unsigned blocks_of(int64_t count, int64_t per_block, unsigned blocks_max) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return blocks_for(count, per_block, blocks_max == 0 ? kMost : blocks_max);
}

// Moves the pieces of the tables into the buffer, and computes the CRCs of its ranges.
template <bool kMoves>
void gather(CudaQueue& queue, const Prepared& ready, uint32_t* crc, unsigned blocks_max) {
  launch(queue, kMoves ? "pack" : "checksums", blocks_of(ready.tables.tile_count, 1, blocks_max),
         kBlockThreads, gather_kernel<kMoves>, ready.tables, ready.tile_crc);
  launch(queue, "joining checksums", blocks_of(ready.tables.range_count, kWarps, blocks_max),
         kBlockThreads, range_kernel, ready.tables, ready.tile_crc, crc);
}

void check_and_scatter(CudaQueue& queue, const Prepared& ready, uint32_t* crc, uint32_t* mismatches,
                       unsigned blocks_max) {
  gather<false>(queue, ready, crc, blocks_max);
  const unsigned blocks = std::max(1u, blocks_of(ready.tables.tile_count, 1, blocks_max));
  launch(queue, "unpack", blocks, kBlockThreads, scatter_kernel, ready.tables, crc, mismatches);
}

// Casts const away: the buffer is only read.
std::byte* only_read(const std::byte* buffer) { return const_cast<std::byte*>(buffer); }

}  // namespace

void pack(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables, std::byte* buffer,
          uint32_t* crc, unsigned blocks_max) {
  gather<true>(queue, on_device(queue, planned, tables, buffer), crc, blocks_max);
}

void pack(CudaQueue& queue, std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
          std::byte* buffer, uint32_t* crc) {
  const size_t bytes = pack_table_bytes(pieces.size(), ranges.size(), total_bytes(ranges));
  const Prepared ready = prepare(queue, bytes, buffer, [&](std::span<std::byte> tables) {
    return pack_tables::plan_for(pieces, ranges, buffer, tables);
  });
  gather<true>(queue, ready, crc, /*blocks_max=*/0);
}

void unpack(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables,
            const std::byte* buffer, uint32_t* crc, uint32_t* mismatches, unsigned blocks_max) {
  CKPT_ASSERT(planned.expected_at > 0 || planned.range_count == 0);
  check_and_scatter(queue, on_device(queue, planned, tables, only_read(buffer)), crc, mismatches,
                    blocks_max);
}

void unpack(CudaQueue& queue, std::span<const UnpackPiece> pieces,
            std::span<const PackRange> ranges, std::span<const uint32_t> expected,
            const std::byte* buffer, uint32_t* crc, uint32_t* mismatches) {
  const size_t bytes = unpack_table_bytes(pieces.size(), ranges.size(), total_bytes(ranges));
  const Prepared ready = prepare(queue, bytes, only_read(buffer), [&](std::span<std::byte> tables) {
    return pack_tables::plan_for(pieces, ranges, expected, buffer, tables);
  });
  check_and_scatter(queue, ready, crc, mismatches, /*blocks_max=*/0);
}

void checksum(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables, uint32_t* crc,
              unsigned blocks_max) {
  CKPT_ASSERT(planned.piece_count == 0);
  gather<false>(queue, on_device(queue, planned, tables, /*buffer=*/nullptr), crc, blocks_max);
}

void preload_pack() {
  const auto preload = [](auto* kernel) {
    cudaFuncAttributes attributes{};
    // Clears a failure, so that no other caller takes it for an error of its own.
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) (void)cudaGetLastError();
  };
  preload(gather_kernel<true>);
  preload(gather_kernel<false>);
  preload(range_kernel);
  preload(scatter_kernel);
}

}  // namespace ckpt::kernels
