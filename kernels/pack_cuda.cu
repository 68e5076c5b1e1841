// Ranges are cut into tiles of equal size, wherever pieces begin and end; a block moves a tile and
// takes its CRC on the way, and a second kernel puts the CRCs of a range's tiles together.
#include <vector>

#include "formats/base/assert.h"
#include "kernels/cuda/crc32c.h"
#include "kernels/pack_checks.h"

namespace ckpt::kernels {
namespace {

// Large enough that putting the threads' states together is a tenth of the work, small enough that
// a buffer of 64 MiB is work for every multiprocessor.
constexpr int64_t kTileBytes = 64 << 10;
// Tiles but a range's first begin at such an address: whole lines of the cache.
constexpr int64_t kCutBytes = 128;
constexpr int64_t kBatch = 4;  // words that a thread has in flight
constexpr int64_t kWordsPerBatch = kBatch * kBlockThreads;

__device__ constexpr NibbleTable kByRow = nibble_table(polynomial::shift_by_bytes(kCrcRowBytes));
__device__ constexpr NibbleTable kByQuarter = nibble_table(polynomial::shift_by_bytes(4));
__device__ constexpr ThreadWeights kWordWeights = thread_weights(kCrcWordBytes);
__device__ constexpr ThreadWeights kTileWeights = thread_weights(kTileBytes);
__device__ constexpr ZerosTaken kZerosTaken = zeros_taken();
__device__ constexpr Powers kPowersOfX = powers_of_x();
constexpr uint32_t kByRound = polynomial::shift_by_bytes(kTileBytes * kBlockThreads);

// --- tables ----------------------------------------------------------------------------------

// Of the buffer: [begin, end).
struct Piece {
  std::byte* outside;
  int64_t begin;
  int64_t end;
};
struct Range {
  int64_t begin;
  int64_t end;
  int64_t first_tile;
  int64_t tiles;
};
struct Tables {
  std::byte* buffer;
  const Piece* pieces;
  int64_t piece_count;
  const Range* ranges;
  int64_t range_count;
  int64_t tiles;
};

// What a block does at a time, and the pieces that have a part of it: [first_piece, piece_end).
struct Tile {
  int64_t range;
  int64_t begin;
  int64_t end;
  int64_t first_piece;
  int64_t piece_end;
};

__host__ __device__ inline int64_t misalignment(const std::byte* at, int64_t alignment) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at)) & (alignment - 1);
}

// Where a range's first tile would begin if it were a whole one. May be in front of the buffer.
__host__ __device__ inline int64_t first_cut(const std::byte* buffer, int64_t range_begin) {
  return range_begin - misalignment(buffer + range_begin, kCutBytes);
}

// The first of pieces [first, end) that ends behind `at`; `end` if none does.
__device__ int64_t first_piece_behind(const Piece* pieces, int64_t first, int64_t end, int64_t at) {
  while (first < end) {
    const int64_t middle = first + (end - first) / 2;
    if (pieces[middle].end > at) {
      end = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

__device__ Tile tile_at(const Tables& tables, int64_t index) {
  // The last range whose first tile is not behind: empty ranges have the one of the next.
  int64_t range = 0;
  for (int64_t end = tables.range_count; end - range > 1;) {
    const int64_t middle = range + (end - range) / 2;
    if (tables.ranges[middle].first_tile > index) {
      end = middle;
    } else {
      range = middle;
    }
  }
  const Range& whole = tables.ranges[range];
  const int64_t cut =
      first_cut(tables.buffer, whole.begin) + (index - whole.first_tile) * kTileBytes;
  Tile tile{};
  tile.range = range;
  tile.begin = std::max(cut, whole.begin);
  tile.end = std::min(cut + kTileBytes, whole.end);
  tile.first_piece = first_piece_behind(tables.pieces, 0, tables.piece_count, tile.begin);
  tile.piece_end =
      first_piece_behind(tables.pieces, tile.first_piece, tables.piece_count, tile.end - 1);
  // The one that reaches over the end has a part of it, too.
  if (tile.piece_end < tables.piece_count && tables.pieces[tile.piece_end].begin < tile.end) {
    ++tile.piece_end;
  }
  return tile;
}

// --- words -----------------------------------------------------------------------------------

__device__ inline uint4 load_word(const std::byte* from) {
  return *reinterpret_cast<const uint4*>(from);
}
__device__ inline void store_word(std::byte* to, const uint4& word) {
  *reinterpret_cast<uint4*>(to) = word;
}

// The same for memory outside the buffer, of any alignment.
__device__ uint4 load_outside(const std::byte* from) {
  if (misalignment(from, 16) == 0) return load_word(from);
  uint32_t quarter[4] = {};
  if (misalignment(from, 4) == 0) {
    for (int i = 0; i < 4; ++i) quarter[i] = reinterpret_cast<const uint32_t*>(from)[i];
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) quarter[i / 4] |= static_cast<uint32_t>(from[i]) << (i % 4 * 8);
  }
  return make_uint4(quarter[0], quarter[1], quarter[2], quarter[3]);
}
__device__ void store_outside(std::byte* to, const uint4& word) {
  if (misalignment(to, 16) == 0) return store_word(to, word);
  const uint32_t quarter[4] = {word.x, word.y, word.z, word.w};
  if (misalignment(to, 4) == 0) {
    for (int i = 0; i < 4; ++i) reinterpret_cast<uint32_t*>(to)[i] = quarter[i];
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) to[i] = static_cast<std::byte>(quarter[i / 4] >> (i % 4 * 8));
  }
}

// What happens to a word or a byte, by direction. What moves is returned.
struct Gather {
  __device__ static uint4 word(std::byte* outside, std::byte* inside) {
    const uint4 moved = load_outside(outside);
    store_word(inside, moved);
    return moved;
  }
  __device__ static std::byte byte(std::byte* outside, std::byte* inside) {
    return *inside = *outside;
  }
};
struct Scatter {
  __device__ static uint4 word(std::byte* outside, std::byte* inside) {
    const uint4 moved = load_word(inside);
    store_outside(outside, moved);
    return moved;
  }
  __device__ static std::byte byte(std::byte* outside, std::byte* inside) {
    return *outside = *inside;
  }
};

// Moves what the pieces have of the aligned 16 bytes of the buffer at `at`, and returns these;
// those outside the tile, which others may own, count as zeros and are not touched.
template <typename Direction>
__device__ uint4 move_word(const Tables& tables, const Tile& tile, int64_t at) {
  std::byte* const inside = tables.buffer + at;
  int64_t next =
      first_piece_behind(tables.pieces, tile.first_piece, tile.piece_end, std::max(at, tile.begin));
  if (at >= tile.begin && at + kCrcWordBytes <= tile.end) {
    const bool any = next < tile.piece_end;
    if (!any || tables.pieces[next].begin >= at + kCrcWordBytes) return load_word(inside);
    const Piece piece = tables.pieces[next];
    if (piece.begin <= at && piece.end >= at + kCrcWordBytes) {
      return Direction::word(piece.outside + (at - piece.begin), inside);
    }
  }
  uint32_t quarter[4] = {};
#pragma unroll
  for (int i = 0; i < kCrcWordBytes; ++i) {
    const int64_t here = at + i;
    if (here < tile.begin || here >= tile.end) continue;
    while (next < tile.piece_end && tables.pieces[next].end <= here) ++next;
    const bool moves = next < tile.piece_end && tables.pieces[next].begin <= here;
    const std::byte value =
        moves ? Direction::byte(tables.pieces[next].outside + (here - tables.pieces[next].begin),
                                inside + i)
              : inside[i];
    quarter[i / 4] |= static_cast<uint32_t>(value) << (i % 4 * 8);
  }
  return make_uint4(quarter[0], quarter[1], quarter[2], quarter[3]);
}

// A tile that consists of aligned words of one piece, or of none: `outside` is where they are, or
// the buffer itself. Null for all other tiles.
__device__ std::byte* outside_of_plain(const Tables& tables, const Tile& tile) {
  std::byte* const inside = tables.buffer + tile.begin;
  if (misalignment(inside, kCrcWordBytes) != 0) return nullptr;
  if ((tile.end - tile.begin) % kCrcWordBytes != 0) return nullptr;
  if (tile.first_piece == tile.piece_end) return inside;
  const Piece& piece = tables.pieces[tile.first_piece];
  if (piece.begin > tile.begin || piece.end < tile.end) return nullptr;
  std::byte* const outside = piece.outside + (tile.begin - piece.begin);
  return misalignment(outside, kCrcWordBytes) == 0 ? outside : nullptr;
}

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
      const int64_t words = (tile.end - tile.begin) / kCrcWordBytes;
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
      const int64_t first = tile.begin - misalignment(tables.buffer + tile.begin, kCrcWordBytes);
      const int64_t words = (tile.end - first + kCrcWordBytes - 1) / kCrcWordBytes;
      zeros = first + words * kCrcWordBytes - tile.end;
      const int64_t rows = (words + kBlockThreads - 1) / kBlockThreads;
      for (int64_t at = threadIdx.x + words - rows * kBlockThreads; at < words;
           at += kBlockThreads) {
        states.add(by_row, at < 0 ? make_uint4(0, 0, 0, 0)
                                  : move_word<Gather>(tables, tile, first + at * kCrcWordBytes));
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
    const int64_t first = tile.begin - misalignment(tables.buffer + tile.begin, kCrcWordBytes);
    const int64_t words = (tile.end - first + kCrcWordBytes - 1) / kCrcWordBytes;
    if (std::byte* outside = outside_of_plain(tables, tile)) {
      const auto* from = reinterpret_cast<const uint4*>(tables.buffer + tile.begin);
      auto* to = reinterpret_cast<uint4*>(outside);
#pragma unroll 4
      for (int64_t at = threadIdx.x; at < words; at += kBlockThreads) to[at] = from[at];
    } else {
      for (int64_t at = threadIdx.x; at < words; at += kBlockThreads) {
        move_word<Scatter>(tables, tile, first + at * kCrcWordBytes);
      }
    }
  }
}

// --- host ------------------------------------------------------------------------------------

std::byte* outside_of(const PackPiece& piece) { return const_cast<std::byte*>(piece.from); }
std::byte* outside_of(const UnpackPiece& piece) { return piece.to; }

template <typename AnyPiece>
std::vector<Piece> device_pieces(std::span<const AnyPiece> pieces) {
  std::vector<Piece> all;
  all.reserve(pieces.size());
  for (const AnyPiece& piece : pieces) {
    if (piece.bytes == 0) continue;  // they would break the order of ends
    all.push_back({outside_of(piece), static_cast<int64_t>(piece.offset),
                   static_cast<int64_t>(piece.offset + piece.bytes)});
  }
  return all;
}

std::vector<Range> device_ranges(std::span<const PackRange> ranges, const std::byte* buffer) {
  std::vector<Range> all;
  all.reserve(ranges.size());
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
    all.push_back(range);
  }
  return all;
}

size_t bytes_of(size_t count, size_t each) { return (count * each + 255) / 256 * 256; }

// Everything on the device that a call needs beside its arguments.
struct Prepared {
  Tables tables;
  uint32_t* tile_crc;
  uint32_t* expected;
};

template <typename AnyPiece>
Prepared prepare(CudaQueue& queue, std::span<const AnyPiece> given_pieces,
                 std::span<const PackRange> given_ranges, std::span<const uint32_t> expected,
                 std::byte* buffer) {
  CKPT_ASSERT(in_order(given_pieces) && in_order(given_ranges));
  CKPT_ASSERT(covered(given_pieces, given_ranges));
  const std::vector<Piece> pieces = device_pieces(given_pieces);
  const std::vector<Range> ranges = device_ranges(given_ranges, buffer);
  const int64_t tiles = ranges.empty() ? 0 : ranges.back().first_tile + ranges.back().tiles;
  const size_t piece_bytes = bytes_of(pieces.size(), sizeof(Piece));
  const size_t range_bytes = bytes_of(ranges.size(), sizeof(Range));
  const size_t tile_bytes = bytes_of(static_cast<size_t>(tiles), sizeof(uint32_t));
  auto* at = static_cast<std::byte*>(
      queue.scratch(piece_bytes + range_bytes + tile_bytes + expected.size_bytes()));
  auto* on_pieces = reinterpret_cast<Piece*>(at);
  auto* on_ranges = reinterpret_cast<Range*>(at += piece_bytes);
  auto* tile_crc = reinterpret_cast<uint32_t*>(at += range_bytes);
  auto* on_expected = reinterpret_cast<uint32_t*>(at += tile_bytes);
  queue.upload(on_pieces, pieces.data(), pieces.size() * sizeof(Piece));
  queue.upload(on_ranges, ranges.data(), ranges.size() * sizeof(Range));
  queue.upload(on_expected, expected.data(), expected.size_bytes());
  const Tables tables{buffer,
                      on_pieces,
                      static_cast<int64_t>(pieces.size()),
                      on_ranges,
                      static_cast<int64_t>(ranges.size()),
                      tiles};
  return {tables, tile_crc, on_expected};
}

// The pieces of `tables` into the buffer, and the CRCs of its ranges.
void gather(CudaQueue& queue, const Tables& tables, uint32_t* tile_crc, uint32_t* crc) {
  launch(queue, "pack", blocks_for(tables.tiles, 1), kBlockThreads, gather_kernel, tables,
         tile_crc);
  launch(queue, "pack's checksums", blocks_for(tables.range_count, 1), kBlockThreads, range_kernel,
         tables, tile_crc, crc);
}

}  // namespace

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
