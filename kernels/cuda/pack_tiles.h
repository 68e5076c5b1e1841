// What pack and unpack do with a block's share of the buffer: which pieces lie there, and how their
// bytes move, aligned or not.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack_tables.h"

namespace ckpt::kernels::pack_tiles {

using pack_tables::Piece;
using pack_tables::Tables;

// What a thread moves at a time: an aligned word of the buffer.
inline constexpr int64_t kWordBytes = 16;

// What a block does at a time, and the pieces that have a part of it: [first_piece, piece_end).
struct Tile {
  int64_t range;
  int64_t begin;
  int64_t end;
  int64_t first_piece;
  int64_t piece_end;
};

__device__ inline int64_t misalignment(const std::byte* at, int64_t alignment) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at)) & (alignment - 1);
}

// The first of pieces [first, end) that ends behind `at`; `end` if none does.
__device__ inline int64_t first_piece_behind(const Piece* pieces, int64_t first, int64_t end,
                                             int64_t at) {
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

__device__ inline Tile tile_at(const Tables& tables, int64_t index) {
  const pack_tables::Tile row = tables.tiles[index];
  const int64_t first_piece = row.first_piece;
  return {row.range, row.begin, row.end, first_piece, first_piece + row.pieces};
}

// Where the buffer's byte `at` is. By its number: where offsets are addresses there is no buffer.
__device__ inline std::byte* inside_of(const Tables& tables, int64_t at) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(tables.buffer) +
                                      static_cast<uintptr_t>(at));
}

__device__ inline uint4 load_word(const std::byte* from) {
  return *reinterpret_cast<const uint4*>(from);
}
__device__ inline void store_word(std::byte* to, const uint4& word) {
  *reinterpret_cast<uint4*>(to) = word;
}

// The same for memory outside the buffer, of any alignment.
__device__ inline uint4 load_outside(const std::byte* from) {
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
__device__ inline void store_outside(std::byte* to, const uint4& word) {
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

// Where the aligned 16 bytes of the buffer at `at` come from if they are one run: within a piece,
// or the buffer itself if no piece has a part of them. Null if not, or if some lie outside the
// tile. A thread asks in ascending order; `next` is its way through the pieces, tile.first_piece at
// first.
__device__ inline std::byte* source_of_word(const Tables& tables, const Tile& tile, int64_t at,
                                            int64_t& next) {
  if (at < tile.begin || at + kWordBytes > tile.end) return nullptr;
  if (next < tile.piece_end && tables.pieces[next].end <= at) {
    next = first_piece_behind(tables.pieces, next + 1, tile.piece_end, at);
  }
  if (next == tile.piece_end) return inside_of(tables, at);
  const Piece piece = tables.pieces[next];
  if (piece.begin >= at + kWordBytes) return inside_of(tables, at);
  const bool whole = piece.begin <= at && piece.end >= at + kWordBytes;
  return whole ? piece.outside + (at - piece.begin) : nullptr;
}

// Moves what the pieces have of the aligned 16 bytes of the buffer at `at`, and returns these;
// those outside the tile, which others may own, count as zeros and are not touched.
template <typename Direction>
__device__ uint4 move_word(const Tables& tables, const Tile& tile, int64_t at) {
  std::byte* const inside = inside_of(tables, at);
  int64_t next =
      first_piece_behind(tables.pieces, tile.first_piece, tile.piece_end, std::max(at, tile.begin));
  if (at >= tile.begin && at + kWordBytes <= tile.end) {
    const bool any = next < tile.piece_end;
    if (!any || tables.pieces[next].begin >= at + kWordBytes) return load_word(inside);
    const Piece piece = tables.pieces[next];
    if (piece.begin <= at && piece.end >= at + kWordBytes) {
      return Direction::word(piece.outside + (at - piece.begin), inside);
    }
  }
  uint32_t quarter[4] = {};
#pragma unroll
  for (int i = 0; i < kWordBytes; ++i) {
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
__device__ inline std::byte* outside_of_plain(const Tables& tables, const Tile& tile) {
  std::byte* const inside = inside_of(tables, tile.begin);
  if (misalignment(inside, kWordBytes) != 0) return nullptr;
  if ((tile.end - tile.begin) % kWordBytes != 0) return nullptr;
  if (tile.first_piece == tile.piece_end) return inside;
  const Piece& piece = tables.pieces[tile.first_piece];
  if (piece.begin > tile.begin || piece.end < tile.end) return nullptr;
  std::byte* const outside = piece.outside + (tile.begin - piece.begin);
  return misalignment(outside, kWordBytes) == 0 ? outside : nullptr;
}

}  // namespace ckpt::kernels::pack_tiles
