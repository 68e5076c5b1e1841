// The tables of a pack: written by the host, read by the kernels of pack_cuda.cu. They list the
// tiles and the pieces in each tile, so that no thread has to search.
//
//   pieces | ranges | tiles | CRCs that unpack expects
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/pack.h"

namespace ckpt::kernels::pack_tables {

// Large enough that combining the threads' states is a tenth of the work, small enough that a
// buffer of 64 MiB is work for every multiprocessor.
inline constexpr int64_t kTileBytes = 64 << 10;
// Every tile of a range but the first begins at a multiple of this: whole lines of the cache.
inline constexpr int64_t kCutBytes = 128;
static_assert(kPackBufferAlignment == kCutBytes);

// A piece holds the bytes [begin, end) of the buffer and is never empty.
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
// A tile is a block's unit of work: the bytes [begin, end), never empty. `pieces` pieces from
// first_piece on overlap the tile.
struct alignas(16) Tile {
  int64_t begin;
  int64_t end;
  uint32_t range;
  uint32_t first_piece;
  uint32_t pieces;
  uint32_t unused;
};

// In device memory.
struct Tables {
  std::byte* buffer;  // null where offsets are addresses
  const Piece* pieces;
  const Range* ranges;
  int64_t range_count;
  const Tile* tiles;
  int64_t tile_count;
  const uint32_t* expected;
};
// The tables of a plan whose bytes start at `at`.
Tables tables_of(const PlannedPack& planned, const std::byte* at, std::byte* buffer);

// Same as plan_pack() and plan_unpack(), for one buffer of any alignment.
PlannedPack plan_for(std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
                     const std::byte* buffer, std::span<std::byte> tables);
PlannedPack plan_for(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
                     std::span<const uint32_t> expected, const std::byte* buffer,
                     std::span<std::byte> tables);

}  // namespace ckpt::kernels::pack_tables
