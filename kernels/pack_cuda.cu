// Ranges are cut into tiles of equal size, wherever pieces begin and end; a block moves a tile and
// takes its CRC on the way, and a second kernel puts the CRCs of a range's tiles together.
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
using pack_tiles::inside_of;
using pack_tiles::kWordBytes;
using pack_tiles::load_outside;
using pack_tiles::misalignment;
using pack_tiles::move_word;
using pack_tiles::outside_of_plain;
using pack_tiles::source_of_word;
using pack_tiles::store_word;
using pack_tiles::Tile;
using pack_tiles::tile_at;

static_assert(kWordBytes == kCrcWordBytes);

constexpr int64_t kBatch = 4;  // words that a thread has in flight
constexpr int64_t kWordsPerBatch = kBatch * kBlockThreads;
// In tiles of several pieces: two make gather_kernel take 48 registers on sm_90, so that a
// multiprocessor has five blocks of it; four would make it 64.
constexpr int64_t kMixedBatch = 2;
constexpr int64_t kWordsPerMixedBatch = kMixedBatch * kBlockThreads;

__device__ constexpr NibbleTable kByRow = nibble_table(polynomial::shift_by_bytes(kCrcRowBytes));
__device__ constexpr NibbleTable kByQuarter = nibble_table(polynomial::shift_by_bytes(4));
__device__ constexpr ThreadWeights kWordWeights = thread_weights(kCrcWordBytes);
__device__ constexpr ThreadWeights kTileWeights = thread_weights(kTileBytes);
__device__ constexpr ZerosTaken kZerosTaken = zeros_taken();
__device__ constexpr Powers kPowersOfX = powers_of_x();
constexpr uint32_t kByRound = polynomial::shift_by_bytes(kTileBytes * kBlockThreads);

// --- kernels ---------------------------------------------------------------------------------

// tile_crc[tile]: the raw state of the tile's bytes, from 0. Without kMoves the buffer is read as
// it is.
template <bool kMoves>
__global__ void __launch_bounds__(kBlockThreads) gather_kernel(Tables tables, uint32_t* tile_crc) {
  __shared__ NibbleTable by_row;
  __shared__ NibbleTable by_quarter;
  __shared__ uint32_t shared[kBlockThreads / kWarpThreads];
  if (threadIdx.x < 128) {
    by_row.entry[threadIdx.x / 16][threadIdx.x % 16] =
        kByRow.entry[threadIdx.x / 16][threadIdx.x % 16];
    by_quarter.entry[threadIdx.x / 16][threadIdx.x % 16] =
        kByQuarter.entry[threadIdx.x / 16][threadIdx.x % 16];
  }
  __syncthreads();
  for (int64_t index = blockIdx.x; index < tables.tile_count; index += gridDim.x) {
    Tile tile = tile_at(tables, index);
    if (!kMoves) tile.piece_end = tile.first_piece;
    CrcStates states;
    int64_t zeros = 0;  // that were put behind the tile's bytes
    if (const std::byte* outside = outside_of_plain(tables, tile)) {
      const auto* from = reinterpret_cast<const uint4*>(outside);
      auto* to = reinterpret_cast<uint4*>(inside_of(tables, tile.begin));
      const int64_t words = (tile.end - tile.begin) / kWordBytes;
      const int64_t batches = (words + kWordsPerBatch - 1) / kWordsPerBatch;
      for (int64_t at = threadIdx.x + words - batches * kWordsPerBatch; at < words;
           at += kWordsPerBatch) {
        uint4 word[kBatch];
#pragma unroll
        for (int64_t i = 0; i < kBatch; ++i) {
          const int64_t here = at + i * kBlockThreads;
          word[i] = here >= 0 ? from[here] : make_uint4(0, 0, 0, 0);
        }
        if (from != to) {
#pragma unroll
          for (int64_t i = 0; i < kBatch; ++i) {
            const int64_t here = at + i * kBlockThreads;
            if (here >= 0) to[here] = word[i];
          }
        }
#pragma unroll
        for (int64_t i = 0; i < kBatch; ++i) states.add(by_row, word[i]);
      }
    } else {
      const int64_t first = tile.begin - misalignment(inside_of(tables, tile.begin), kWordBytes);
      const int64_t words = (tile.end - first + kWordBytes - 1) / kWordBytes;
      zeros = first + words * kWordBytes - tile.end;
      const int64_t batches = (words + kWordsPerMixedBatch - 1) / kWordsPerMixedBatch;
      int64_t next = tile.first_piece;
      for (int64_t at = threadIdx.x + words - batches * kWordsPerMixedBatch; at < words;
           at += kWordsPerMixedBatch) {
        std::byte* source[kMixedBatch];
        uint4 word[kMixedBatch];
#pragma unroll
        for (int64_t i = 0; i < kMixedBatch; ++i) {
          const int64_t here = first + (at + i * kBlockThreads) * kWordBytes;
          source[i] = source_of_word(tables, tile, here, next);
          word[i] = source[i] != nullptr ? load_outside(source[i]) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int64_t i = 0; i < kMixedBatch; ++i) {
          const int64_t here = at + i * kBlockThreads;
          std::byte* const inside = inside_of(tables, first + here * kWordBytes);
          if (source[i] != nullptr) {
            if (source[i] != inside) store_word(inside, word[i]);
          } else if (here >= 0) {
            word[i] = move_word<pack_tiles::Gather>(tables, tile, first + here * kWordBytes);
          }
          states.add(by_row, word[i]);
        }
      }
    }
    const uint32_t state = block_state(states.together(by_quarter), kWordWeights, shared);
    if (threadIdx.x == 0) {
      tile_crc[index] = polynomial::multiply(kZerosTaken.factor[zeros], state);
    }
  }
}

// A block per range. Tiles but the last end kTileBytes apart, however long the first is.
__global__ void __launch_bounds__(kBlockThreads)
    range_kernel(Tables tables, const uint32_t* tile_crc, uint32_t* crc) {
  __shared__ uint32_t shared[kBlockThreads / kWarpThreads];
  for (int64_t index = blockIdx.x; index < tables.range_count; index += gridDim.x) {
    const Range range = tables.ranges[index];
    if (range.tiles == 0) {
      if (threadIdx.x == 0) crc[index] = 0;
      continue;
    }
    const uint32_t* const tile = tile_crc + range.first_tile;
    const int64_t but_last = range.tiles - 1;
    const int64_t rounds = (but_last + kBlockThreads - 1) / kBlockThreads;
    uint32_t state = 0;
    for (int64_t at = threadIdx.x + but_last - rounds * kBlockThreads; at < but_last;
         at += kBlockThreads) {
      state = polynomial::multiply(kByRound, state) ^ (at >= 0 ? tile[at] : 0);
    }
    state = block_state(state, kTileWeights, shared);
    if (threadIdx.x >= kWarpThreads) continue;
    const int64_t last_begin = tables.tiles[range.first_tile + but_last].begin;
    // A CRC starts from all ones in front of the first byte, and is inverted at the end.
    const uint32_t ones = warp_shift(kPowersOfX, static_cast<uint64_t>(last_begin - range.begin));
    state ^= polynomial::multiply(~0u, ones);
    const uint32_t by_last = warp_shift(kPowersOfX, static_cast<uint64_t>(range.end - last_begin));
    state = polynomial::multiply(by_last, state) ^ tile[but_last];
    if (threadIdx.x == 0) crc[index] = ~state;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    mismatches_kernel(int64_t ranges, const uint32_t* crc, const uint32_t* expected,
                      uint32_t* mismatches) {
  __shared__ uint32_t shared[kBlockThreads / kWarpThreads];
  uint32_t count = 0;
  for (int64_t i = threadIdx.x; i < ranges; i += kBlockThreads) {
    if (crc[i] != expected[i]) ++count;
  }
  count = block_sum<kBlockThreads>(count, shared);
  if (threadIdx.x == 0) *mismatches = count;
}

__global__ void __launch_bounds__(kBlockThreads)
    scatter_kernel(Tables tables, const uint32_t* crc) {
  for (int64_t index = blockIdx.x; index < tables.tile_count; index += gridDim.x) {
    const Tile tile = tile_at(tables, index);
    if (crc[tile.range] != tables.expected[tile.range]) continue;
    if (tile.first_piece == tile.piece_end) continue;
    const int64_t first = tile.begin - misalignment(inside_of(tables, tile.begin), kWordBytes);
    const int64_t words = (tile.end - first + kWordBytes - 1) / kWordBytes;
    if (std::byte* outside = outside_of_plain(tables, tile)) {
      const auto* from = reinterpret_cast<const uint4*>(inside_of(tables, tile.begin));
      auto* to = reinterpret_cast<uint4*>(outside);
      for (int64_t at = threadIdx.x; at < words; at += kWordsPerBatch) {
        uint4 word[kBatch];
#pragma unroll
        for (int64_t i = 0; i < kBatch; ++i) {
          const int64_t here = at + i * kBlockThreads;
          if (here < words) word[i] = from[here];
        }
#pragma unroll
        for (int64_t i = 0; i < kBatch; ++i) {
          const int64_t here = at + i * kBlockThreads;
          if (here < words) to[here] = word[i];
        }
      }
    } else {
      for (int64_t at = threadIdx.x; at < words; at += kBlockThreads) {
        move_word<pack_tiles::Scatter>(tables, tile, first + at * kWordBytes);
      }
    }
  }
}

// --- host ------------------------------------------------------------------------------------

// Everything on the device that a call needs beside its arguments.
struct Prepared {
  Tables tables;
  uint32_t* tile_crc;
};

// Brings tables that were planned by `plan` from host memory, as long as the call takes.
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

unsigned blocks_of(int64_t count, unsigned blocks_max) {
  return blocks_for(count, 1, blocks_max == 0 ? kGridBlocksMax : blocks_max);
}

// The pieces of the tables into the buffer, and the CRCs of its ranges.
template <bool kMoves>
void gather(CudaQueue& queue, const Prepared& ready, uint32_t* crc, unsigned blocks_max) {
  launch(queue, kMoves ? "pack" : "checksums", blocks_of(ready.tables.tile_count, blocks_max),
         kBlockThreads, gather_kernel<kMoves>, ready.tables, ready.tile_crc);
  launch(queue, "joining checksums", blocks_of(ready.tables.range_count, blocks_max), kBlockThreads,
         range_kernel, ready.tables, ready.tile_crc, crc);
}

void check_and_scatter(CudaQueue& queue, const Prepared& ready, uint32_t* crc, uint32_t* mismatches,
                       unsigned blocks_max) {
  gather<false>(queue, ready, crc, blocks_max);
  launch(queue, "counting mismatches", 1, kBlockThreads, mismatches_kernel,
         ready.tables.range_count, crc, ready.tables.expected, mismatches);
  launch(queue, "unpack", blocks_of(ready.tables.tile_count, blocks_max), kBlockThreads,
         scatter_kernel, ready.tables, crc);
}

// Nothing is gathered into it: the buffer is only read.
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
    // What has failed here must not be found by whoever asks for the last error next.
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) (void)cudaGetLastError();
  };
  preload(gather_kernel<true>);
  preload(gather_kernel<false>);
  preload(range_kernel);
  preload(mismatches_kernel);
  preload(scatter_kernel);
}

}  // namespace ckpt::kernels
