#include "kernels/cuda/pack_tables.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "formats/base/assert.h"
#include "kernels/pack_checks.h"

namespace ckpt::kernels {
namespace pack_tables {
namespace {

constexpr size_t kTableAlignment = 16;
static_assert(alignof(Tile) <= kTableAlignment);

std::byte* outside_of(const PackPiece& piece) { return const_cast<std::byte*>(piece.from); }
std::byte* outside_of(const UnpackPiece& piece) { return piece.to; }

constexpr size_t table_aligned(size_t bytes) {
  return (bytes + kTableAlignment - 1) / kTableAlignment * kTableAlignment;
}
int64_t address_of(const std::byte* at) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at));
}

uint64_t total(std::span<const PackRange> ranges) {
  uint64_t bytes = 0;
  for (const PackRange& range : ranges) bytes += range.bytes;
  return bytes;
}

// Writes the tables of one plan. Every list has room for its largest possible number of rows.
class Writer {
 public:
  // `buffer`: only its address modulo kCutBytes matters.
  Writer(size_t pieces, size_t ranges, uint64_t bytes, const std::byte* buffer,
         std::span<std::byte> tables)
      : tables_(tables), buffer_(buffer) {
    constexpr size_t kMost = std::numeric_limits<uint32_t>::max();  // a tile counts in 32 bits
    CKPT_ASSERT(tables.size() >= pack_table_bytes(pieces, ranges, bytes));
    CKPT_ASSERT(address_of(tables.data()) % kTableAlignment == 0);
    CKPT_ASSERT(pieces <= kMost && ranges <= kMost);
  }

  template <typename AnyPiece>
  void write_pieces(std::span<const AnyPiece> pieces) {
    auto* const row = rows<Piece>(0);
    for (const AnyPiece& piece : pieces) {
      if (piece.bytes == 0) continue;  // empty pieces would break the order of ends
      row[planned_.piece_count++] = {outside_of(piece), static_cast<int64_t>(piece.offset),
                                     static_cast<int64_t>(piece.offset + piece.bytes)};
    }
    pieces_ = row;
    planned_.ranges_at = end_of<Piece>(0, planned_.piece_count);
  }

  // Appends the ranges behind the pieces. If there are pieces, ranges are in order.
  template <typename Ranges, typename BeginOf>
  void write_ranges(const Ranges& ranges, const BeginOf& begin_of) {
    planned_.range_count = static_cast<int64_t>(ranges.size());
    planned_.tiles_at = end_of<Range>(planned_.ranges_at, planned_.range_count);
    auto* row = rows<Range>(planned_.ranges_at);
    for (uint32_t i = 0; i < ranges.size(); ++i) {
      Range range{};
      range.begin = begin_of(ranges[i]);
      range.end = range.begin + static_cast<int64_t>(ranges[i].bytes);
      range.first_tile = planned_.tiles;
      if (range.begin < range.end) write_tiles(range, i);
      range.tiles = planned_.tiles - range.first_tile;
      *row++ = range;
    }
    planned_.table_bytes = end_of<Tile>(planned_.tiles_at, planned_.tiles);
  }

  void write_expected(std::span<const uint32_t> expected) {
    planned_.expected_at = planned_.table_bytes;
    planned_.table_bytes = planned_.expected_at + table_aligned(expected.size_bytes());
    CKPT_ASSERT(tables_.size() >= planned_.table_bytes);
    if (expected.empty()) return;
    std::memcpy(tables_.data() + planned_.expected_at, expected.data(), expected.size_bytes());
  }

  const PlannedPack& planned() const { return planned_; }

 private:
  template <typename Row>
  Row* rows(size_t at) const {
    return reinterpret_cast<Row*>(tables_.data() + at);
  }
  template <typename Row>
  static size_t end_of(size_t at, int64_t rows) {
    return at + table_aligned(static_cast<size_t>(rows) * sizeof(Row));
  }

  // Every tile but the first begins at a multiple of kCutBytes. Every tile but the last ends
  // kTileBytes behind such a multiple.
  void write_tiles(const Range& range, uint32_t number) {
    auto* const row = rows<Tile>(planned_.tiles_at);
    for (int64_t begin = range.begin; begin < range.end;) {
      const int64_t cut = begin - ((address_of(buffer_) + begin) & (kCutBytes - 1));
      const int64_t end = std::min(cut + kTileBytes, range.end);
      Tile tile{
          .begin = begin, .end = end, .range = number, .first_piece = 0, .pieces = 0, .unused = 0};
      while (next_piece_ < planned_.piece_count && pieces_[next_piece_].end <= begin) ++next_piece_;
      int64_t piece_end = next_piece_;
      while (piece_end < planned_.piece_count && pieces_[piece_end].begin < end) ++piece_end;
      tile.first_piece = static_cast<uint32_t>(next_piece_);
      tile.pieces = static_cast<uint32_t>(piece_end - next_piece_);
      // The last piece may extend into the next tile.
      next_piece_ = std::max(next_piece_, piece_end - 1);
      row[planned_.tiles++] = tile;
      begin = end;
    }
  }

  const std::span<std::byte> tables_;
  const std::byte* const buffer_;
  PlannedPack planned_;
  const Piece* pieces_ = nullptr;
  int64_t next_piece_ = 0;  // first piece that may overlap the next tile
};

template <typename AnyPiece>
Writer planned_for(std::span<const AnyPiece> pieces, std::span<const PackRange> ranges,
                   const std::byte* buffer, std::span<std::byte> tables) {
  CKPT_ASSERT(in_order(pieces) && in_order(ranges));
  CKPT_ASSERT(covered(pieces, ranges));
  Writer writer(pieces.size(), ranges.size(), total(ranges), buffer, tables);
  writer.write_pieces(pieces);
  writer.write_ranges(ranges,
                      [](const PackRange& range) { return static_cast<int64_t>(range.offset); });
  return writer;
}

}  // namespace

PlannedPack plan_for(std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
                     const std::byte* buffer, std::span<std::byte> tables) {
  return planned_for(pieces, ranges, buffer, tables).planned();
}

PlannedPack plan_for(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
                     std::span<const uint32_t> expected, const std::byte* buffer,
                     std::span<std::byte> tables) {
  CKPT_ASSERT(expected.size() == ranges.size());
  Writer writer = planned_for(pieces, ranges, buffer, tables);
  writer.write_expected(expected);
  return writer.planned();
}

Tables tables_of(const PlannedPack& planned, const std::byte* at, std::byte* buffer) {
  return {.buffer = buffer,
          .pieces = reinterpret_cast<const Piece*>(at),
          .ranges = reinterpret_cast<const Range*>(at + planned.ranges_at),
          .range_count = planned.range_count,
          .tiles = reinterpret_cast<const Tile*>(at + planned.tiles_at),
          .tile_count = planned.tiles,
          .expected = reinterpret_cast<const uint32_t*>(at + planned.expected_at)};
}

}  // namespace pack_tables

using pack_tables::kCutBytes;
using pack_tables::kTileBytes;
using pack_tables::table_aligned;

// A range of n bytes that begins m bytes behind a cut has (n + m) / kTileBytes tiles, rounded up; m
// is less than kCutBytes.
size_t pack_table_bytes(size_t pieces, size_t ranges, uint64_t bytes) {
  const size_t tiles = ranges + (bytes + ranges * (kCutBytes - 1)) / kTileBytes;
  return table_aligned(pieces * sizeof(pack_tables::Piece)) +
         table_aligned(ranges * sizeof(pack_tables::Range)) +
         table_aligned(tiles * sizeof(pack_tables::Tile));
}
size_t unpack_table_bytes(size_t pieces, size_t ranges, uint64_t bytes) {
  return pack_table_bytes(pieces, ranges, bytes) + table_aligned(ranges * sizeof(uint32_t));
}

PlannedPack plan_pack(std::span<const PackPiece> pieces, std::span<const PackRange> ranges,
                      std::span<std::byte> tables) {
  return pack_tables::plan_for(pieces, ranges, /*buffer=*/nullptr, tables);
}

PlannedPack plan_unpack(std::span<const UnpackPiece> pieces, std::span<const PackRange> ranges,
                        std::span<const uint32_t> expected, std::span<std::byte> tables) {
  return pack_tables::plan_for(pieces, ranges, expected, /*buffer=*/nullptr, tables);
}

// Treats the runs as ranges of a buffer at address 0.
PlannedPack plan_checksums(std::span<const ChecksumRun> runs, std::span<std::byte> tables) {
  uint64_t bytes = 0;
  for (const ChecksumRun& run : runs) bytes += run.bytes;
  pack_tables::Writer writer(/*pieces=*/0, runs.size(), bytes, /*buffer=*/nullptr, tables);
  writer.write_pieces(std::span<const PackPiece>());
  writer.write_ranges(runs,
                      [](const ChecksumRun& run) { return pack_tables::address_of(run.from); });
  return writer.planned();
}

}  // namespace ckpt::kernels
