// Planned packs, unpacks and checksums: the caller uploads their tables to the device.
#include <deque>

#include "tests/kernels/pack_layout.h"

namespace ckpt::kernels {
namespace {

// 0: no limit on the blocks of a launch. Few blocks: each processes many tiles.
constexpr unsigned kBlocksMax[] = {0, 1, 3};

// Three packs whose tables are uploaded together. Each pack runs twice.
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
    unsigned number = 0;
    for (const size_t i : {0, 1, 2, 2, 0, 1}) {
      const Bytes before = random_bytes(c, layouts[i].buffer_bytes);
      const Packed expected = packed(c, layouts[i], outside[i], before);
      const BackendMemory to(c, before, 0);
      const BackendMemory crc(c, Bytes(layouts[i].ranges.size() * sizeof(uint32_t)), 0);
      pack(c.queue(), planned[i], on_device.data() + tables_at[i], to.data(), crc.words(),
           kBlocksMax[number++ % 3]);
      c.expect_equal(to.read(), expected.buffer, "the buffer");
      c.expect_equal(crc.read_words(), expected.crc, "CRCs");
    }
    c.expect_equal(on_device.read(), tables, "the tables, afterwards");
  }
}

void unpack_planned_ahead(Checker& c) {
  for (int trial = 0; trial < 24; ++trial) {
    c.now("trial " + std::to_string(trial));
    const Layout layout = random_layout(c.random);
    Packed wanted = packed(c, layout, random_bytes(c, layout.outside_bytes),
                           random_bytes(c, layout.buffer_bytes));
    std::vector<bool> bad(layout.ranges.size());
    uint32_t count = 0;
    for (size_t i = 0; i < bad.size(); ++i) {
      bad[i] = c.random() % 3 == 0;
      if (bad[i]) wanted.crc[i] ^= 1 + static_cast<uint32_t>(c.random() % 7);
      count += bad[i] ? 1 : 0;
    }
    const Bytes blank = random_bytes(c, layout.outside_bytes);
    const BackendMemory to(c, blank, 0);
    std::vector<UnpackPiece> pieces;
    for (const auto& p : layout.pieces)
      pieces.push_back({to.data() + p.outside, p.offset, p.bytes});
    Bytes tables(unpack_table_bytes(pieces.size(), layout.ranges.size(), layout.range_bytes()));
    const PlannedPack planned = plan_unpack(pieces, layout.ranges, wanted.crc, tables);
    c.expect(planned.table_bytes <= tables.size(), "tables take more than is said");
    const BackendMemory on_device(c, tables, 0);
    const BackendMemory from(c, wanted.buffer, 0);
    const BackendMemory crc(c, Bytes(layout.ranges.size() * sizeof(uint32_t)), 0);
    const BackendMemory mismatches(c, Bytes(sizeof(uint32_t), std::byte{7}), 0);
    unpack(c.queue(), planned, on_device.data(), from.data(), crc.words(), mismatches.words(),
           kBlocksMax[trial % 3]);
    c.expect_equal(from.read(), wanted.buffer, "the buffer, afterwards");
    c.expect_equal(on_device.read(), tables, "the tables, afterwards");
    c.expect(mismatches.read_words()[0] == count, "ranges that are said to be wrong");
    c.expect_equal(to.read(), scattered(layout, wanted.buffer, blank, bad), "what was scattered");
  }
}

// Checks the CRCs of runs of a memory; `runs` are relative to its begin.
void check_runs(Checker& c, const Bytes& content, const std::vector<PackRange>& runs,
                uint64_t shift) {
  const BackendMemory memory(c, content, shift);
  std::vector<ChecksumRun> given;
  std::vector<uint32_t> expected;
  uint64_t bytes = 0;
  for (const PackRange& run : runs) {
    given.push_back({memory.data() + run.offset, run.bytes});
    expected.push_back(base::crc32c(ByteView(content).subspan(run.offset, run.bytes)));
    bytes += run.bytes;
  }
  Bytes tables(pack_table_bytes(0, runs.size(), bytes));
  const PlannedPack planned = plan_checksums(given, tables);
  c.expect(planned.table_bytes <= tables.size(), "tables take more than is said");
  const BackendMemory on_device(c, tables, 0);
  for (const unsigned blocks_max : kBlocksMax) {
    const BackendMemory crc(c, Bytes(runs.size() * sizeof(uint32_t)), 0);
    checksum(c.queue(), planned, on_device.data(), crc.words(), blocks_max);
    c.expect_equal(crc.read_words(), expected,
                   "CRCs by " + std::to_string(blocks_max) + " blocks at most");
  }
  c.expect_equal(memory.read(), content, "what was read, afterwards");
  c.expect_equal(on_device.read(), tables, "the tables, afterwards");
}

void checksum_runs_in_any_order_that_overlap(Checker& c) {
  const Bytes content = random_bytes(c, 5 * kTile + 333);
  const std::vector<PackRange> runs = {{3 * kTile + 1, kTile + 50},
                                       {0, content.size()},
                                       {17, 0},
                                       {4, 1},
                                       {content.size(), 0},
                                       {3 * kTile, 2 * kTile + 333},
                                       {5, 16},
                                       {5, 16},
                                       {16, 2 * kTile},
                                       {1, 4 * kTile + 300}};
  for (const uint64_t shift : {0, 1, 4, 15, 100}) {
    c.now("shift " + std::to_string(shift));
    check_runs(c, content, runs, shift);
  }
}

void checksum_nothing_at_all(Checker& c) {
  check_runs(c, {}, {}, 0);
  check_runs(c, random_bytes(c, 3), {{1, 0}, {3, 0}}, 1);
}

// More tiles than a warp combines at a time, and more runs than a block combines.
void checksum_a_long_run_and_many_short_ones(Checker& c) {
  const Bytes content = random_bytes(c, 70 * kTile + 40);
  std::vector<PackRange> runs = {{9, 70 * kTile}, {0, 33 * kTile}, {0, 34 * kTile}};
  for (int i = 0; i < 300; ++i) {
    const uint64_t offset = c.random() % content.size();
    runs.push_back({offset, c.random() % std::min<uint64_t>(content.size() - offset + 1, 700)});
  }
  check_runs(c, content, runs, 3);
}

// Worst case for the size of the tables: every range begins at the end of a cache line.
void tables_take_no_more_than_is_said(Checker& c) {
  constexpr uint64_t kPlace = 4 * kTile;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{2}, kTile - 127, kTile - 126, kTile, kTile + 1,
                               2 * kTile - 126, 3 * kTile}) {
    c.now(std::to_string(bytes) + " bytes");
    std::vector<PackRange> ranges;
    for (uint64_t i = 0; i < 9; ++i) ranges.push_back({i * kPlace + 127, bytes});
    Bytes tables(pack_table_bytes(0, ranges.size(), ranges.size() * bytes));
    const PlannedPack planned = plan_pack({}, ranges, tables);
    c.expect(planned.table_bytes <= tables.size(), "tables take more than is said");
    const auto tiles = static_cast<int64_t>(9 * ((bytes + 127 + kTile - 1) / kTile));
    c.expect(planned.tiles == tiles, std::to_string(planned.tiles) + " tiles");
  }
}

}  // namespace

std::vector<Check> pack_planned_checks() {
  return {
      {"pack_planned_ahead_cuda", Backend::kCuda, pack_planned_ahead},
      {"unpack_planned_ahead_cuda", Backend::kCuda, unpack_planned_ahead},
      {"checksum_runs_in_any_order_that_overlap_cuda", Backend::kCuda,
       checksum_runs_in_any_order_that_overlap},
      {"checksum_nothing_at_all_cuda", Backend::kCuda, checksum_nothing_at_all},
      {"checksum_a_long_run_and_many_short_ones_cuda", Backend::kCuda,
       checksum_a_long_run_and_many_short_ones},
      {"pack_tables_take_no_more_than_is_said_cuda", Backend::kCuda,
       tables_take_no_more_than_is_said},
  };
}

}  // namespace ckpt::kernels
