// Fragments of a file into device memory and out again: every wanted byte, once per want, out of
// whole blocks.
#include "client/src/cuda/direct_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "formats/base/crc32c.h"

namespace ckpt::lib {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kAnySize = 1 << 20;

ckpt_restore_fragment fragment(uint64_t offset, uint64_t length) {
  return {.file_offset = offset, .length = length, .first_piece = 0, .piece_count = 0, .crc32c = 0};
}

TEST(DirectPlanTest, NeighboursShareBlocksAndReads) {
  const std::vector<ckpt_restore_fragment> fragments = {
      fragment(100, 50), fragment(150, 5000),  // in blocks 0 and 1
      fragment(2 * kBlock, 1),                 // the next block
      fragment(10 * kBlock + 7, 2 * kBlock)};  // 10 to 12
  const DirectPlan plan = plan_direct(fragments, kAnySize);
  const std::vector<DirectRead> reads = {{0, 3 * kBlock, 0}, {10 * kBlock, 3 * kBlock, 3 * kBlock}};
  EXPECT_EQ(plan.reads, reads);
  EXPECT_EQ(plan.bytes, 6 * kBlock);
  EXPECT_EQ(plan.fragment_at, (std::vector<uint64_t>{100, 150, 2 * kBlock, 3 * kBlock + 7}));
}

TEST(DirectPlanTest, LongReadsAreSplit) {
  const std::vector<ckpt_restore_fragment> fragments = {fragment(kBlock, 5 * kBlock - 1)};
  const DirectPlan plan = plan_direct(fragments, 2 * kBlock);
  const std::vector<DirectRead> reads = {{kBlock, 2 * kBlock, 0},
                                         {3 * kBlock, 2 * kBlock, 2 * kBlock},
                                         {5 * kBlock, kBlock, 4 * kBlock}};
  EXPECT_EQ(plan.reads, reads);
}

TEST(DirectPlanTest, ShortReadSpoilsOnlyIncompleteFragments) {
  const std::vector<ckpt_restore_fragment> fragments = {
      fragment(0, 100), fragment(100, kBlock), fragment(2 * kBlock, 10), fragment(9 * kBlock, 10)};
  const DirectPlan plan = plan_direct(fragments, kAnySize);
  ASSERT_EQ(plan.reads.size(), 2u);
  const auto spoilt = [&](uint64_t first, uint64_t second) {
    return incomplete_fragments(plan, fragments, std::vector<uint64_t>{first, second});
  };
  using Bools = std::vector<bool>;
  EXPECT_EQ(spoilt(3 * kBlock, kBlock), (Bools{false, false, false, false}));
  EXPECT_EQ(spoilt(2 * kBlock, kBlock), (Bools{false, false, true, false}));
  EXPECT_EQ(spoilt(kBlock, kBlock), (Bools{false, true, true, false}));
  EXPECT_EQ(spoilt(0, kBlock), (Bools{true, true, true, false}));
  EXPECT_EQ(spoilt(3 * kBlock, 0), (Bools{false, false, false, true}));
}

// A file of random bytes, random fragments of it, random parts of those, and where they go.
struct RandomLayout {
  explicit RandomLayout(uint64_t seed) : random(seed), file(64 * kBlock) {
    for (std::byte& one : file) one = static_cast<std::byte>(random());
    const uint64_t longest = seed % 2 == 0 ? 3 * kBlock : 300;
    for (uint64_t at = random() % kBlock;;) {
      const uint64_t length = 1 + random() % longest;
      if (at + length > file.size()) break;
      add(at, length);
      at += length + random() % 3 * (random() % (2 * kBlock));
    }
    for (const ckpt_restore_piece& piece : pieces) {
      into.emplace_back(5 + piece.length, std::byte{0x5a});
      destinations.push_back({0, 0, into.back().data(), into.back().size()});
    }
  }
  void add(uint64_t at, uint64_t length) {
    ckpt_restore_fragment one = fragment(at, length);
    one.crc32c = base::crc32c(ByteView(file).subspan(at, length));
    one.first_piece = pieces.size();
    one.piece_count = 1 + random() % 3;
    for (size_t i = 0; i < one.piece_count; ++i) {
      const uint64_t begin = random() % length;
      pieces.push_back({.range = pieces.size(),
                        .offset = 5,
                        .length = random() % (length - begin),
                        .at = at + begin,
                        .crc32c = 0});
    }
    fragments.push_back(one);
  }
  std::vector<std::byte> read(const DirectPlan& plan) const {
    std::vector<std::byte> scratch(plan.bytes);
    for (const DirectRead& one : plan.reads) {
      EXPECT_EQ((one.file_offset | one.bytes | one.at) % kBlock, 0u);
      EXPECT_LE(one.at + one.bytes, scratch.size());
      std::copy_n(file.begin() + static_cast<ptrdiff_t>(one.file_offset), one.bytes,
                  scratch.begin() + static_cast<ptrdiff_t>(one.at));
    }
    return scratch;
  }
  bool arrived(size_t piece) const {
    const ByteView from = ByteView(file).subspan(pieces[piece].at, pieces[piece].length);
    return std::equal(from.begin(), from.end(), into[piece].begin() + 5);
  }
  bool untouched(size_t piece) const {
    const auto& bytes = into[piece];
    return std::all_of(bytes.begin(), bytes.end(),
                       [](std::byte one) { return one == std::byte{0x5a}; });
  }

  std::mt19937_64 random;
  std::vector<std::byte> file;
  std::vector<ckpt_restore_fragment> fragments;
  std::vector<ckpt_restore_piece> pieces;
  std::vector<std::vector<std::byte>> into;
  std::vector<ckpt_cuda_destination> destinations;
};

TEST(DirectPlanTest, RandomLayoutsArriveWholeExceptOmittedFragments) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomLayout layout(seed);
    const DirectPlan plan = plan_direct(layout.fragments, (1 + seed % 4) * kBlock);
    const std::vector<std::byte> scratch = layout.read(plan);
    std::vector<bool> left_out(layout.fragments.size());
    left_out[layout.random() % left_out.size()] = true;
    const ScatterPlan scatter =
        plan_scatter(plan, layout.fragments, layout.pieces, layout.destinations, left_out);
    std::vector<bool> checked(left_out.size());
    for (const UnpackCall& call : scatter.calls) {
      std::vector<uint32_t> crc(call.ranges.size());
      uint32_t mismatches = 0;
      kernels::unpack(call.pieces, call.ranges, call.expected, scratch.data(), crc.data(),
                      &mismatches);
      EXPECT_EQ(mismatches, 0u);
      for (const size_t number : call.numbers) checked[number] = true;
    }
    for (size_t number = 0; number < left_out.size(); ++number) {
      EXPECT_EQ(checked[number], !left_out[number]);
      for (size_t i = 0; i < layout.fragments[number].piece_count; ++i) {
        const size_t piece = layout.fragments[number].first_piece + i;
        EXPECT_TRUE(left_out[number] ? layout.untouched(piece) : layout.arrived(piece))
            << "piece " << piece;
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::lib
