// pack and unpack on every backend, against formats/base/crc32c.h and a plain copy. The layouts are
// random: pieces of any size and alignment, gaps, ranges of several tiles.
#include "tests/kernels/pack_layout.h"

namespace ckpt::kernels {
namespace {

// Checks pack against a plain copy, and that unpack undoes it.
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

// More pieces in a tile than a block has threads to fetch them. Words of one piece each, words of
// many pieces, and gaps at the end of a batch of pieces.
void pack_more_pieces_in_a_tile_than_are_at_hand(Checker& c) {
  struct Case {
    uint64_t bytes, gap, shift;
  };
  for (const auto& [bytes, gap, shift] :
       {Case{16, 0, 16}, Case{16, 48, 0}, Case{1, 0, 0}, Case{1, 1, 2}, Case{15, 0, 1},
        Case{17, 3, 0}, Case{4, 60, 4}, Case{96, 0, 16}}) {
    c.now(std::to_string(bytes) + " bytes, then " + std::to_string(gap));
    Layout layout;
    layout.skip(bytes);
    layout.range(std::vector<uint64_t>(1100, bytes), gap, shift);
    there_and_back(c, layout);
  }
}

void pack_pieces_of_many_tiles_among_small_ones(Checker& c) {
  Layout layout;
  layout.range({5, 3 * kTile + 8, 1, 16, 2 * kTile, 4096, 0, kTile / 2, kTile / 2 - 16, 7}, 0, 16);
  layout.range({8192, 8192, kTile, 8192, 2 * kTile, 16, 4000}, 16, 32);
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

// One tensor, split into fragments.
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
  add_on_both(all, "pack_more_pieces_in_a_tile_than_are_at_hand",
              pack_more_pieces_in_a_tile_than_are_at_hand);
  add_on_both(all, "pack_pieces_of_many_tiles_among_small_ones",
              pack_pieces_of_many_tiles_among_small_ones);
  add_on_both(all, "pack_ranges_of_many_tiles_and_ranges_without_pieces",
              pack_ranges_of_many_tiles_and_ranges_without_pieces);
  add_on_both(all, "pack_a_piece_of_several_ranges", pack_a_piece_of_several_ranges);
  add_on_both(all, "pack_a_long_range_that_is_only_read", pack_a_long_range_that_is_only_read);
  add_on_both(all, "pack_thousands_of_ranges", pack_thousands_of_ranges);
  add_on_both(all, "pack_random_layouts", pack_random_layouts);
  add_on_both(all, "unpack_counts_a_corrupted_range_and_does_not_scatter_it",
              unpack_counts_a_corrupted_range_and_does_not_scatter_it);
  return all;
}

}  // namespace ckpt::kernels
