// pack and unpack on every backend, against formats/base/crc32c.h and a plain copy. What moves is a
// random layout: pieces of any size and alignment, gaps, ranges of several tiles.
#include <deque>

#include "formats/base/crc32c.h"
#include "kernels/pack.h"
#include "tests/kernels/backend_memory.h"

namespace ckpt::kernels {
namespace {

constexpr uint64_t kTile = 64 << 10;  // of the CUDA version

// Ranges and pieces; a piece's place outside the buffer is an offset into one memory of their own.
struct Layout {
  struct Piece {
    uint64_t outside;
    uint64_t offset;
    uint64_t bytes;
  };
  std::vector<Piece> pieces;
  std::vector<PackRange> ranges;
  uint64_t outside_bytes = 0;
  uint64_t buffer_bytes = 0;

  uint64_t range_bytes() const {
    uint64_t bytes = 0;
    for (const PackRange& range : ranges) bytes += range.bytes;
    return bytes;
  }
  void skip(uint64_t bytes) { buffer_bytes += bytes; }
  // Appends a range of pieces with these lengths, `gap` bytes behind each, and `shift` more bytes
  // outside than in the buffer, so that the two are aligned differently.
  void range(const std::vector<uint64_t>& lengths, uint64_t gap = 0, uint64_t shift = 0) {
    const uint64_t begin = buffer_bytes;
    for (const uint64_t bytes : lengths) {
      outside_bytes += shift;
      pieces.push_back({outside_bytes, buffer_bytes, bytes});
      outside_bytes += bytes;
      buffer_bytes += bytes + gap;
    }
    ranges.push_back({begin, buffer_bytes - begin});
  }
};

Layout random_layout(std::mt19937_64& random) {
  const auto below = [&](uint64_t limit) { return random() % limit; };
  const uint64_t step = std::vector<uint64_t>{1, 4, 16}[below(3)];  // all sizes are multiples
  Layout layout;
  layout.skip(below(200) / step * step);
  for (uint64_t range = below(6); range-- > 0;) {
    std::vector<uint64_t> lengths;
    for (uint64_t count = below(5); count-- > 0;) {
      const uint64_t limit = std::vector<uint64_t>{1, 40, 5000, 2 * kTile + 100}[below(4)];
      lengths.push_back(below(limit) / step * step);
    }
    layout.range(lengths, below(3) == 0 ? below(300) / step * step : 0, below(3) * step);
    layout.skip(below(2) * below(100) / step * step);
  }
  return layout;
}

// Bytes from 256 bytes of alignment.
struct Shifts {
  uint64_t outside = 0;
  uint64_t buffer = 0;
};

struct Packed {
  Bytes buffer;
  std::vector<uint32_t> crc;
};

Packed packed(Checker& c, const Layout& layout, const Bytes& outside, const Bytes& buffer,
              const Shifts& shifts = {}) {
  const BackendMemory from(c, outside, shifts.outside);
  const BackendMemory to(c, buffer, shifts.buffer);
  const BackendMemory crc(c, Bytes(layout.ranges.size() * sizeof(uint32_t)), 0);
  std::vector<PackPiece> pieces;
  for (const auto& p : layout.pieces)
    pieces.push_back({from.data() + p.outside, p.offset, p.bytes});
  c.run([&](auto&... queue) { pack(queue..., pieces, layout.ranges, to.data(), crc.words()); });
  c.expect_equal(from.read(), outside, "what was gathered, afterwards");
  return {to.read(), crc.read_words()};
}

struct Unpacked {
  Bytes outside;
  std::vector<uint32_t> crc;
  uint32_t mismatches;
};

Unpacked unpacked(Checker& c, const Layout& layout, const Packed& packed, const Bytes& outside,
                  const Shifts& shifts = {}) {
  const BackendMemory from(c, packed.buffer, shifts.buffer);
  const BackendMemory to(c, outside, shifts.outside);
  const BackendMemory crc(c, Bytes(layout.ranges.size() * sizeof(uint32_t)), 0);
  const BackendMemory mismatches(c, Bytes(sizeof(uint32_t), std::byte{7}), 0);
  std::vector<UnpackPiece> pieces;
  for (const auto& p : layout.pieces) pieces.push_back({to.data() + p.outside, p.offset, p.bytes});
  c.run([&](auto&... queue) {
    unpack(queue..., pieces, layout.ranges, packed.crc, from.data(), crc.words(),
           mismatches.words());
  });
  c.expect_equal(from.read(), packed.buffer, "the buffer, afterwards");
  return {to.read(), crc.read_words(), mismatches.read_words()[0]};
}

// `outside` after all ranges but the `bad` ones were scattered over it.
Bytes scattered(const Layout& layout, const Bytes& buffer, Bytes outside,
                const std::vector<bool>& bad) {
  for (const auto& p : layout.pieces) {
    for (size_t i = 0; i < layout.ranges.size(); ++i) {
      const PackRange& r = layout.ranges[i];
      if (p.offset < r.offset || p.offset + p.bytes > r.offset + r.bytes) continue;
      if (!bad.empty() && bad[i]) continue;
      std::copy_n(buffer.begin() + static_cast<ptrdiff_t>(p.offset), p.bytes,
                  outside.begin() + static_cast<ptrdiff_t>(p.outside));
    }
  }
  return outside;
}

// What pack should do, and that unpack undoes it.
void there_and_back(Checker& c, const Layout& layout, const Shifts& shifts = {}) {
  const Bytes outside = random_bytes(c, layout.outside_bytes);
  const Bytes before = random_bytes(c, layout.buffer_bytes);
  Packed expected{before, {}};
  for (const auto& p : layout.pieces) {
    std::copy_n(outside.begin() + static_cast<ptrdiff_t>(p.outside), p.bytes,
                expected.buffer.begin() + static_cast<ptrdiff_t>(p.offset));
  }
  for (const PackRange& r : layout.ranges) {
    expected.crc.push_back(base::crc32c(ByteView(expected.buffer).subspan(r.offset, r.bytes)));
  }
  const Packed found = packed(c, layout, outside, before, shifts);
  c.expect_equal(found.buffer, expected.buffer, "the buffer");
  c.expect_equal(found.crc, expected.crc, "CRCs of pack");

  const Bytes blank = random_bytes(c, layout.outside_bytes);
  const Unpacked back = unpacked(c, layout, expected, blank, shifts);
  c.expect(back.mismatches == 0, std::to_string(back.mismatches) + " CRCs are said to be wrong");
  c.expect_equal(back.crc, expected.crc, "CRCs of unpack");
  c.expect_equal(back.outside, scattered(layout, expected.buffer, blank, {}), "what was scattered");
}

void pack_nothing_at_all(Checker& c) {
  there_and_back(c, {});
  Layout empty;
  empty.range({});
  empty.range({0, 0});
  there_and_back(c, empty);
}

void pack_sizes_around_words_rows_and_tiles(Checker& c) {
  for (const uint64_t middle :
       {uint64_t{0}, uint64_t{16}, uint64_t{4096}, uint64_t{16384}, kTile, 3 * kTile}) {
    for (uint64_t bytes = middle < 2 ? 0 : middle - 2; bytes <= middle + 2; ++bytes) {
      c.now(std::to_string(bytes) + " bytes");
      Layout layout;
      layout.range({bytes});
      there_and_back(c, layout);
    }
  }
}

void pack_every_alignment_of_both_ends(Checker& c) {
  for (uint64_t shift = 0; shift < 17; ++shift) {
    c.now("shift " + std::to_string(shift));
    Layout layout;
    layout.range({kTile + 777, 1, 300});
    there_and_back(c, layout, {.outside = shift, .buffer = 0});
    there_and_back(c, layout, {.outside = shift, .buffer = shift});
    there_and_back(c, layout, {.outside = 0, .buffer = shift});
  }
}

void pack_many_small_pieces_and_empty_ones(Checker& c) {
  Layout layout;
  layout.range(std::vector<uint64_t>(3000, 7), 0, 1);
  layout.range(std::vector<uint64_t>(300, 16), 16);
  layout.range({5, 0, 0, 5, 0}, 3);
  layout.range({});
  layout.range(std::vector<uint64_t>(40, 4096), 0, 16);
  there_and_back(c, layout);
}

void pack_ranges_of_many_tiles_and_ranges_without_pieces(Checker& c) {
  Layout layout;
  layout.skip(50);
  layout.range({3 * kTile, 2 * kTile + 16});
  layout.skip(14);
  layout.ranges.push_back({layout.buffer_bytes, 2 * kTile + 3});  // only what was there
  layout.skip(2 * kTile + 3);
  layout.range({kTile / 2 + 5}, kTile + 9);
  there_and_back(c, layout);
}

// One tensor, cut into fragments.
void pack_a_piece_of_several_ranges(Checker& c) {
  Layout layout;
  layout.range({2 * kTile + 100});
  const uint64_t all = layout.buffer_bytes;
  layout.ranges = {{0, 1000}, {1000, kTile}, {1000 + kTile, 0}, {1000 + kTile, all - kTile - 1000}};
  const Bytes outside = random_bytes(c, all);
  const Packed found = packed(c, layout, outside, Bytes(all));
  c.expect_equal(found.buffer, outside, "the buffer");
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const PackRange& r = layout.ranges[i];
    c.expect(found.crc[i] == base::crc32c(ByteView(outside).subspan(r.offset, r.bytes)),
             "the CRC of range " + std::to_string(i));
  }
}

// More tiles than a block has threads.
void pack_a_long_range_that_is_only_read(Checker& c) {
  Layout layout;
  layout.ranges.push_back({5, 260 * kTile});
  layout.skip(260 * kTile + 10);
  there_and_back(c, layout);
}

// More tiles than a launch has blocks.
void pack_thousands_of_ranges(Checker& c) {
  Layout layout;
  for (int i = 0; i < 2100; ++i) layout.range({3}, i % 7 == 0 ? 1 : 0);
  there_and_back(c, layout);
}

void pack_random_layouts(Checker& c) {
  Shifts shifts;
  for (int trial = 0; trial < 60; ++trial) {
    c.now("trial " + std::to_string(trial));
    const Layout layout = random_layout(c.random);
    shifts.outside = c.random() % 3 == 0 ? c.random() % 64 : 0;
    shifts.buffer = c.random() % 3 == 0 ? c.random() % 64 : 0;
    there_and_back(c, layout, shifts);
  }
}

// Three packs whose tables come to the device together, each done twice.
void pack_planned_ahead(Checker& c) {
  for (int trial = 0; trial < 10; ++trial) {
    c.now("trial " + std::to_string(trial));
    std::vector<std::byte> tables;
    std::vector<Layout> layouts;
    std::vector<Bytes> outside;
    std::deque<BackendMemory> from;
    std::vector<PlannedPack> planned;
    std::vector<size_t> tables_at;
    layouts.reserve(3);
    outside.reserve(3);
    planned.reserve(3);
    tables_at.reserve(3);
    for (int i = 0; i < 3; ++i) {
      const Layout& layout = layouts.emplace_back(random_layout(c.random));
      from.emplace_back(c, outside.emplace_back(random_bytes(c, layout.outside_bytes)), 0);
      std::vector<PackPiece> pieces;
      pieces.reserve(layout.pieces.size());
      for (const auto& p : layout.pieces) {
        pieces.push_back({from.back().data() + p.outside, p.offset, p.bytes});
      }
      tables_at.push_back(tables.size());
      tables.resize(tables.size() +
                    pack_table_bytes(pieces.size(), layout.ranges.size(), layout.range_bytes()));
      planned.push_back(
          plan_pack(pieces, layout.ranges, std::span(tables).subspan(tables_at.back())));
      c.expect(planned.back().table_bytes <= tables.size() - tables_at.back(),
               "tables take more than is said");
    }
    const BackendMemory on_device(c, tables, 0);
    for (const size_t i : {0, 1, 2, 2, 0, 1}) {
      const Bytes before = random_bytes(c, layouts[i].buffer_bytes);
      const Packed expected = packed(c, layouts[i], outside[i], before);
      const BackendMemory to(c, before, 0);
      const BackendMemory crc(c, Bytes(layouts[i].ranges.size() * sizeof(uint32_t)), 0);
      pack(c.queue(), planned[i], on_device.data() + tables_at[i], to.data(), crc.words());
      c.expect_equal(to.read(), expected.buffer, "the buffer");
      c.expect_equal(crc.read_words(), expected.crc, "CRCs");
    }
    c.expect_equal(on_device.read(), tables, "the tables, afterwards");
  }
}

void unpack_counts_a_corrupted_range_and_does_not_scatter_it(Checker& c) {
  for (int trial = 0; trial < 40; ++trial) {
    c.now("trial " + std::to_string(trial));
    const Layout layout = random_layout(c.random);
    const Packed sound = packed(c, layout, random_bytes(c, layout.outside_bytes),
                                random_bytes(c, layout.buffer_bytes));
    Packed damaged = sound;
    std::vector<bool> bad(layout.ranges.size());
    uint32_t count = 0;
    for (size_t i = 0; i < layout.ranges.size(); ++i) {
      const PackRange& r = layout.ranges[i];
      if (r.bytes == 0 || c.random() % 2 == 0) continue;
      damaged.buffer[r.offset + c.random() % r.bytes] ^= std::byte{1} << c.random() % 8;
      bad[i] = true;
      ++count;
    }
    const Bytes blank = random_bytes(c, layout.outside_bytes);
    const Unpacked back = unpacked(c, layout, damaged, blank);
    c.expect(back.mismatches == count, std::to_string(back.mismatches) + " ranges are said to be" +
                                           " wrong, " + std::to_string(count) + " are");
    for (size_t i = 0; i < bad.size(); ++i) {
      c.expect((back.crc[i] != sound.crc[i]) == bad[i], "the CRC of range " + std::to_string(i));
    }
    c.expect_equal(back.outside, scattered(layout, damaged.buffer, blank, bad),
                   "what was scattered");
  }
}

}  // namespace

std::vector<Check> pack_checks() {
  std::vector<Check> all;
  add_on_both(all, "pack_nothing_at_all", pack_nothing_at_all);
  add_on_both(all, "pack_sizes_around_words_rows_and_tiles",
              pack_sizes_around_words_rows_and_tiles);
  add_on_both(all, "pack_every_alignment_of_both_ends", pack_every_alignment_of_both_ends);
  add_on_both(all, "pack_many_small_pieces_and_empty_ones", pack_many_small_pieces_and_empty_ones);
  add_on_both(all, "pack_ranges_of_many_tiles_and_ranges_without_pieces",
              pack_ranges_of_many_tiles_and_ranges_without_pieces);
  add_on_both(all, "pack_a_piece_of_several_ranges", pack_a_piece_of_several_ranges);
  add_on_both(all, "pack_a_long_range_that_is_only_read", pack_a_long_range_that_is_only_read);
  add_on_both(all, "pack_thousands_of_ranges", pack_thousands_of_ranges);
  add_on_both(all, "pack_random_layouts", pack_random_layouts);
  all.push_back({"pack_planned_ahead_cuda", Backend::kCuda, pack_planned_ahead});
  add_on_both(all, "unpack_counts_a_corrupted_range_and_does_not_scatter_it",
              unpack_counts_a_corrupted_range_and_does_not_scatter_it);
  return all;
}

}  // namespace ckpt::kernels
