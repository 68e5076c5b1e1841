// Ranges are cut into tiles of equal size, wherever pieces begin and end; a block moves a tile and
// takes its CRC on the way, and a second kernel puts the CRCs of a range's tiles together.
#include <cstring>
#include <vector>

#include "formats/base/assert.h"
#include "kernels/cuda/crc32c.h"
#include "kernels/cuda/pack_tiles.h"
#include "kernels/pack_checks.h"

namespace ckpt::kernels {
namespace {

using pack_tiles::first_cut;
using pack_tiles::kTileBytes;
using pack_tiles::kWordBytes;
using pack_tiles::load_outside;
using pack_tiles::misalignment;
using pack_tiles::move_word;
using pack_tiles::outside_of_plain;
using pack_tiles::Piece;
using pack_tiles::Range;
using pack_tiles::source_of_word;
using pack_tiles::store_word;
using pack_tiles::Tables;
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

// tile_crc[tile]: the raw state of the tile's bytes, from 0.
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
  for (int64_t index = blockIdx.x; index < tables.tiles; index += gridDim.x) {
    const Tile tile = tile_at(tables, index);
    CrcStates states;
    int64_t zeros = 0;  // that were put behind the tile's bytes
    if (const std::byte* outside = outside_of_plain(tables, tile)) {
      const auto* from = reinterpret_cast<const uint4*>(outside);
      auto* to = reinterpret_cast<uint4*>(tables.buffer + tile.begin);
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
      const int64_t first = tile.begin - misalignment(tables.buffer + tile.begin, kWordBytes);
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
          std::byte* const inside = tables.buffer + first + here * kWordBytes;
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
    const int64_t last_begin =
        std::max(range.begin, first_cut(tables.buffer, range.begin) + but_last * kTileBytes);
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
    scatter_kernel(Tables tables, const uint32_t* crc, const uint32_t* expected) {
  for (int64_t index = blockIdx.x; index < tables.tiles; index += gridDim.x) {
    const Tile tile = tile_at(tables, index);
    if (crc[tile.range] != expected[tile.range]) continue;
    if (tile.first_piece == tile.piece_end) continue;
    const int64_t first = tile.begin - misalignment(tables.buffer + tile.begin, kWordBytes);
    const int64_t words = (tile.end - first + kWordBytes - 1) / kWordBytes;
    if (std::byte* outside = outside_of_plain(tables, tile)) {
      const auto* from = reinterpret_cast<const uint4*>(tables.buffer + tile.begin);
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

static_assert(kPackBufferAlignment == pack_tiles::kCutBytes);
constexpr size_t kTableAlignment = 16;

std::byte* outside_of(const PackPiece& piece) { return const_cast<std::byte*>(piece.from); }
std::byte* outside_of(const UnpackPiece& piece) { return piece.to; }

constexpr size_t aligned(size_t bytes) {
  return (bytes + kTableAlignment - 1) / kTableAlignment * kTableAlignment;
}

template <typename AnyPiece>
int64_t write_pieces(std::span<const AnyPiece> pieces, std::byte* tables) {
  auto* row = reinterpret_cast<Piece*>(tables);
  int64_t count = 0;
  for (const AnyPiece& piece : pieces) {
    if (piece.bytes == 0) continue;  // they would break the order of ends
    row[count++] = {outside_of(piece), static_cast<int64_t>(piece.offset),
                    static_cast<int64_t>(piece.offset + piece.bytes)};
  }
  return count;
}

// How many tiles there are.
int64_t write_ranges(std::span<const PackRange> ranges, const std::byte* buffer,
                     std::byte* tables) {
  auto* row = reinterpret_cast<Range*>(tables);
  int64_t tiles = 0;
  for (const PackRange& given : ranges) {
    Range range{};
    range.begin = static_cast<int64_t>(given.offset);
    range.end = range.begin + static_cast<int64_t>(given.bytes);
    range.first_tile = tiles;
    if (given.bytes > 0) {
      range.tiles = (range.end - first_cut(buffer, range.begin) + kTileBytes - 1) / kTileBytes;
    }
    tiles += range.tiles;
    *row++ = range;
  }
  return tiles;
}

// `buffer`: where it will be, as far as its address modulo kPackBufferAlignment goes.
template <typename AnyPiece>
PlannedPack plan(std::span<const AnyPiece> pieces, std::span<const PackRange> ranges,
                 const std::byte* buffer, std::span<std::byte> tables) {
  CKPT_ASSERT(in_order(pieces) && in_order(ranges));
  CKPT_ASSERT(covered(pieces, ranges));
  CKPT_ASSERT(tables.size() >= pack_table_bytes(pieces.size(), ranges.size()));
  CKPT_ASSERT(misalignment(tables.data(), kTableAlignment) == 0);
  PlannedPack planned;
  planned.piece_count = write_pieces(pieces, tables.data());
  planned.ranges_at = aligned(static_cast<size_t>(planned.piece_count) * sizeof(Piece));
  planned.range_count = static_cast<int64_t>(ranges.size());
  planned.table_bytes = planned.ranges_at + ranges.size() * sizeof(Range);
  planned.tiles = write_ranges(ranges, buffer, tables.data() + planned.ranges_at);
  return planned;
}

// With the planned tables at `at` in device memory.
Tables tables_of(const PlannedPack& planned, const std::byte* at, std::byte* buffer) {
  return {buffer,
          reinterpret_cast<const Piece*>(at),
          planned.piece_count,
          reinterpret_cast<const Range*>(at + planned.ranges_at),
          planned.range_count,
          planned.tiles};
}

// Everything on the device that a call needs beside its arguments.
struct Prepared {
  Tables tables;
  uint32_t* tile_crc;
  const uint32_t* expected;
};

template <typename AnyPiece>
Prepared prepare(CudaQueue& queue, std::span<const AnyPiece> pieces,
                 std::span<const PackRange> ranges, std::span<const uint32_t> expected,
                 std::byte* buffer) {
  const size_t expected_at = pack_table_bytes(pieces.size(), ranges.size());
  const size_t tile_crc_at = aligned(expected_at + expected.size_bytes());
  std::vector<std::byte> tables(tile_crc_at);
  const PlannedPack planned = plan(pieces, ranges, buffer, tables);
  if (!expected.empty()) {
    std::memcpy(tables.data() + expected_at, expected.data(), expected.size_bytes());
  }
  auto* const at = static_cast<std::byte*>(
      queue.scratch(tile_crc_at + static_cast<size_t>(planned.tiles) * sizeof(uint32_t)));
  queue.upload(at, tables.data(), tables.size());
  return {tables_of(planned, at, buffer), reinterpret_cast<uint32_t*>(at + tile_crc_at),
          reinterpret_cast<const uint32_t*>(at + expected_at)};
}

// The pieces of `tables` into the buffer, and the CRCs of its ranges.
void gather(CudaQueue& queue, const Tables& tables, uint32_t* tile_crc, uint32_t* crc) {
  launch(queue, "pack", blocks_for(tables.tiles, 1), kBlockThreads, gather_kernel, tables,
         tile_crc);
  launch(queue, "pack's checksums", blocks_for(tables.range_count, 1), kBlockThreads, range_kernel,
         tables, tile_crc, crc);
}

}  // namespace

size_t pack_table_bytes(size_t pieces, size_t ranges) {
  return aligned(pieces * sizeof(Piece)) + aligned(ranges * sizeof(Range));
}

PlannedPack plan_pack(std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
                      std::span<std::byte> tables) {
  return plan(pieces, ranges, /*buffer=*/nullptr, tables);
}

void pack(CudaQueue& queue, const PlannedPack& planned, const std::byte* tables, std::byte* buffer,
          uint32_t* crc) {
  CKPT_ASSERT(misalignment(buffer, pack_tiles::kCutBytes) == 0);
  auto* const tile_crc =
      static_cast<uint32_t*>(queue.scratch(static_cast<size_t>(planned.tiles) * sizeof(uint32_t)));
  gather(queue, tables_of(planned, tables, buffer), tile_crc, crc);
}

void pack(CudaQueue& queue, std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
          std::byte* buffer, uint32_t* crc) {
  const Prepared ready = prepare(queue, pieces, ranges, {}, buffer);
  gather(queue, ready.tables, ready.tile_crc, crc);
}

void unpack(CudaQueue& queue, std::span<const UnpackPiece> pieces,
            std::span<const PackRange> ranges, std::span<const uint32_t> expected,
            const std::byte* buffer, uint32_t* crc, uint32_t* mismatches) {
  CKPT_ASSERT(expected.size() == ranges.size());
  // Nothing is gathered from no pieces: the buffer is only read.
  const Prepared ready = prepare(queue, pieces, ranges, expected, const_cast<std::byte*>(buffer));
  Tables only_ranges = ready.tables;
  only_ranges.piece_count = 0;
  gather(queue, only_ranges, ready.tile_crc, crc);
  launch(queue, "counting mismatches", 1, kBlockThreads, mismatches_kernel,
         ready.tables.range_count, crc, ready.expected, mismatches);
  launch(queue, "unpack", blocks_for(ready.tables.tiles, 1), kBlockThreads, scatter_kernel,
         ready.tables, crc, ready.expected);
}

}  // namespace ckpt::kernels
