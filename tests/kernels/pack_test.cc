// pack and unpack on every backend, against formats/base/crc32c.h and a plain copy. What moves is a
// seeded random layout: pieces of any size and alignment, gaps, ranges of several tiles.
#include "kernels/pack.h"

#include <gtest/gtest.h>

#include <random>

#include "formats/base/crc32c.h"
#include "tests/kernels/memory_backends.h"

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

class PackTest : public MemoryTest {
 protected:
  struct Packed {
    Bytes buffer;
    std::vector<uint32_t> crc;
  };
  Packed pack_on_backend(const Layout& layout, const Bytes& outside, const Bytes& buffer) {
    const auto from = memory(outside, from_shift_);
    const auto to = memory(buffer, buffer_shift_);
    const auto crc = memory(Bytes(layout.ranges.size() * sizeof(uint32_t)), 0);
    std::vector<PackPiece> pieces;
    for (const auto& p : layout.pieces) {
      pieces.push_back({from->data() + p.outside, p.offset, p.bytes});
    }
    run([&](auto&... queue) { pack(queue..., pieces, layout.ranges, to->data(), words(*crc)); });
    EXPECT_EQ(from->read(), outside);
    return {to->read(), read_words(*crc)};
  }
  struct Unpacked {
    Bytes outside;
    std::vector<uint32_t> crc;
    uint32_t mismatches;
  };
  Unpacked unpack_on_backend(const Layout& layout, const Bytes& buffer, const Bytes& outside,
                             const std::vector<uint32_t>& expected) {
    const auto from = memory(buffer, buffer_shift_);
    const auto to = memory(outside, from_shift_);
    const auto crc = memory(Bytes(layout.ranges.size() * sizeof(uint32_t)), 0);
    const auto mismatches = memory(Bytes(sizeof(uint32_t), std::byte{7}), 0);
    std::vector<UnpackPiece> pieces;
    for (const auto& p : layout.pieces) {
      pieces.push_back({to->data() + p.outside, p.offset, p.bytes});
    }
    run([&](auto&... queue) {
      unpack(queue..., pieces, layout.ranges, expected, from->data(), words(*crc),
             words(*mismatches));
    });
    EXPECT_EQ(from->read(), buffer);
    return {to->read(), read_words(*crc), read_words(*mismatches)[0]};
  }

  // What pack should do, and that unpack undoes it.
  void expect_there_and_back(const Layout& layout) {
    const Bytes outside = random_bytes(layout.outside_bytes);
    const Bytes before = random_bytes(layout.buffer_bytes);
    Packed expected{before, {}};
    for (const auto& p : layout.pieces) {
      std::copy_n(outside.begin() + static_cast<ptrdiff_t>(p.outside), p.bytes,
                  expected.buffer.begin() + static_cast<ptrdiff_t>(p.offset));
    }
    for (const PackRange& r : layout.ranges) {
      expected.crc.push_back(base::crc32c(ByteView(expected.buffer).subspan(r.offset, r.bytes)));
    }
    const Packed packed = pack_on_backend(layout, outside, before);
    // Not EXPECT_EQ: it would print megabytes.
    EXPECT_TRUE(packed.buffer == expected.buffer);
    EXPECT_EQ(packed.crc, expected.crc);

    const Bytes blank = random_bytes(layout.outside_bytes);
    const Unpacked back = unpack_on_backend(layout, packed.buffer, blank, packed.crc);
    EXPECT_EQ(back.mismatches, 0u);
    EXPECT_EQ(back.crc, expected.crc);
    EXPECT_TRUE(back.outside == scattered(layout, packed.buffer, blank, {}));
  }

  // `outside` after all ranges but the `bad` ones were scattered over it.
  static Bytes scattered(const Layout& layout, const Bytes& buffer, Bytes outside,
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

  uint64_t from_shift_ = 0;    // from 256 bytes of alignment
  uint64_t buffer_shift_ = 0;  // the same
};

TEST_P(PackTest, NothingAtAll) {
  expect_there_and_back({});
  Layout empty;
  empty.range({});
  empty.range({0, 0});
  expect_there_and_back(empty);
}

TEST_P(PackTest, SizesAroundWordsRowsAndTiles) {
  for (const uint64_t middle :
       {uint64_t{0}, uint64_t{16}, uint64_t{4096}, uint64_t{16384}, kTile, 3 * kTile}) {
    for (uint64_t bytes = middle < 2 ? 0 : middle - 2; bytes <= middle + 2; ++bytes) {
      SCOPED_TRACE(bytes);
      Layout layout;
      layout.range({bytes});
      expect_there_and_back(layout);
    }
  }
}

TEST_P(PackTest, EveryAlignmentOfBothEnds) {
  for (uint64_t shift = 0; shift < 17; ++shift) {
    SCOPED_TRACE(shift);
    Layout layout;
    layout.range({kTile + 777, 1, 300});
    from_shift_ = shift;
    buffer_shift_ = 0;
    expect_there_and_back(layout);
    buffer_shift_ = shift;
    expect_there_and_back(layout);
    from_shift_ = 0;
    expect_there_and_back(layout);
  }
}

TEST_P(PackTest, ManySmallPiecesAndEmptyOnes) {
  Layout layout;
  layout.range(std::vector<uint64_t>(3000, 7), 0, 1);
  layout.range(std::vector<uint64_t>(300, 16), 16);
  layout.range({5, 0, 0, 5, 0}, 3);
  layout.range({});
  layout.range(std::vector<uint64_t>(40, 4096), 0, 16);
  expect_there_and_back(layout);
}

TEST_P(PackTest, RangesOfManyTilesAndRangesWithoutPieces) {
  Layout layout;
  layout.skip(50);
  layout.range({3 * kTile, 2 * kTile + 16});
  layout.skip(14);
  layout.ranges.push_back({layout.buffer_bytes, 2 * kTile + 3});  // only what was there
  layout.skip(2 * kTile + 3);
  layout.range({kTile / 2 + 5}, kTile + 9);
  expect_there_and_back(layout);
}

// One tensor, cut into fragments.
TEST_P(PackTest, APieceOfSeveralRanges) {
  Layout layout;
  layout.range({2 * kTile + 100});
  const uint64_t all = layout.buffer_bytes;
  layout.ranges = {{0, 1000}, {1000, kTile}, {1000 + kTile, 0}, {1000 + kTile, all - kTile - 1000}};
  const Bytes outside = random_bytes(all);
  const Packed packed = pack_on_backend(layout, outside, Bytes(all));
  EXPECT_TRUE(packed.buffer == outside);
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const PackRange& r = layout.ranges[i];
    EXPECT_EQ(packed.crc[i], base::crc32c(ByteView(outside).subspan(r.offset, r.bytes)));
  }
}

// More tiles than a block has threads.
TEST_P(PackTest, ALongRangeThatIsOnlyRead) {
  Layout layout;
  layout.ranges.push_back({5, 260 * kTile});
  layout.skip(260 * kTile + 10);
  expect_there_and_back(layout);
}

// More tiles than a launch has blocks.
TEST_P(PackTest, ThousandsOfRanges) {
  Layout layout;
  for (int i = 0; i < 2100; ++i) layout.range({3}, i % 7 == 0 ? 1 : 0);
  expect_there_and_back(layout);
}

TEST_P(PackTest, RandomLayouts) {
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    const Layout layout = random_layout(random_);
    from_shift_ = random_() % 3 == 0 ? random_() % 64 : 0;
    buffer_shift_ = random_() % 3 == 0 ? random_() % 64 : 0;
    expect_there_and_back(layout);
  }
}

TEST_P(PackTest, ACorruptedRangeIsCountedAndNotScattered) {
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(trial);
    const Layout layout = random_layout(random_);
    const Packed packed = pack_on_backend(layout, random_bytes(layout.outside_bytes),
                                          random_bytes(layout.buffer_bytes));
    Bytes damaged = packed.buffer;
    std::vector<bool> bad(layout.ranges.size());
    uint32_t count = 0;
    for (size_t i = 0; i < layout.ranges.size(); ++i) {
      const PackRange& r = layout.ranges[i];
      if (r.bytes == 0 || random_() % 2 == 0) continue;
      damaged[r.offset + random_() % r.bytes] ^= std::byte{1} << random_() % 8;
      bad[i] = true;
      ++count;
    }
    const Bytes blank = random_bytes(layout.outside_bytes);
    const Unpacked back = unpack_on_backend(layout, damaged, blank, packed.crc);
    EXPECT_EQ(back.mismatches, count);
    for (size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(back.crc[i] != packed.crc[i], bad[i]);
    EXPECT_TRUE(back.outside == scattered(layout, damaged, blank, bad));
  }
}

CKPT_ON_EVERY_BACKEND(PackTest);

// The checks are the same on every backend; a process with a CUDA context cannot fork.
TEST(PackTablesTest, TablesThatBreakTheRulesAbort) {
  const Bytes outside(100);
  Bytes buffer(100);
  std::vector<uint32_t> crc(10);
  const auto refused = [&](std::vector<PackPiece> pieces, std::vector<PackRange> ranges) {
    for (PackPiece& piece : pieces) piece.from = outside.data();
    EXPECT_DEATH(pack(pieces, ranges, buffer.data(), crc.data()), "in_order|covered");
  };
  refused({{nullptr, 10, 10}, {nullptr, 5, 5}}, {{0, 100}});
  refused({{nullptr, 10, 10}, {nullptr, 15, 5}}, {{0, 100}});
  refused({}, {{0, 10}, {9, 10}});
  refused({{nullptr, 10, 10}}, {});
  refused({{nullptr, 10, 10}}, {{0, 19}});
  refused({{nullptr, 10, 10}}, {{0, 12}, {13, 20}});
}

}  // namespace
}  // namespace ckpt::kernels
