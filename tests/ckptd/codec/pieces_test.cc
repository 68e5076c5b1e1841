#include "ckptd/codec/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ckptd/limits.h"

namespace ckptd {
namespace {

using ckpt::Codec;
using ckpt::DType;
using testing::ElementsAre;

constexpr uint64_t kMiB = 1 << 20;

ckpt::UnitSpec unit_of(const std::vector<std::pair<DType, uint64_t>>& tensors, uint64_t gap = 0) {
  ckpt::UnitSpec unit;
  for (const auto& [dtype, count] : tensors) {
    unit.tensors.push_back({.name = fmt::format("t{}", unit.tensors.size()),
                            .dtype = dtype,
                            .shape = {count},
                            .offset = unit.bytes});
    unit.bytes += count * ckpt::dtype_bytes(dtype) + gap;
  }
  return unit;
}

TEST(CutPieces, CutsLargeRanges) {
  const ckpt::UnitSpec unit = unit_of({{DType::kF32, 3 * kMiB / 4}});
  EXPECT_THAT(
      cut_pieces(unit, {0, 0, unit.bytes}),
      ElementsAre(Piece{0, kMiB, Codec::kZstdPlanes4}, Piece{kMiB, kMiB, Codec::kZstdPlanes4},
                  Piece{2 * kMiB, kMiB, Codec::kZstdPlanes4}));
  EXPECT_THAT(cut_pieces(unit, {0, 10, 20}), ElementsAre(Piece{10, 20, Codec::kZstdPlanes4}));
}

TEST(CutPieces, CutsWhereElementSizeChanges) {
  const ckpt::UnitSpec unit =
      unit_of({{DType::kBF16, 50'000}, {DType::kF16, 50'000}, {DType::kF32, 50'000}});
  EXPECT_THAT(cut_pieces(unit, {0, 0, unit.bytes}),
              ElementsAre(Piece{0, 200'000, Codec::kZstdPlanes2},
                          Piece{200'000, 200'000, Codec::kZstdPlanes4}));
}

TEST(CutPieces, SmallTensorsDoNotMakeSmallPieces) {
  const ckpt::UnitSpec unit =
      unit_of({{DType::kF32, 100}, {DType::kI64, 1}, {DType::kF32, 100'000}, {DType::kU8, 7}});
  EXPECT_THAT(cut_pieces(unit, {0, 0, unit.bytes}),
              ElementsAre(Piece{0, 400'408, Codec::kZstdPlanes4}, Piece{400'408, 7, Codec::kZstd}));
}

TEST(CutPieces, BytesWithoutATensorHaveNoPlanes) {
  ckpt::UnitSpec unit;
  unit.bytes = 5'000;
  EXPECT_THAT(cut_pieces(unit, {0, 0, 5'000}), ElementsAre(Piece{0, 5'000, Codec::kZstd}));
}

TEST(CutPieces, CoverAnyRangeOfAnyUnit) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    std::vector<std::pair<DType, uint64_t>> tensors;
    for (uint64_t i = random() % 30; i > 0; --i) {
      const auto dtype = static_cast<DType>(random() % ckpt::kDTypeCountOfVersion8);
      tensors.emplace_back(dtype, 1 + random() % (random() % 4 == 0 ? 700'000 : 100));
    }
    ckpt::UnitSpec unit = unit_of(tensors, random() % 9);
    unit.bytes += 1 + random() % 1000;
    const uint64_t from = random() % unit.bytes;
    const uint64_t length = 1 + random() % (unit.bytes - from);
    uint64_t at = from;
    const std::vector<Piece> pieces = cut_pieces(unit, {0, from, length});
    for (const Piece& piece : pieces) {
      ASSERT_EQ(piece.offset, at);
      ASSERT_GT(piece.length, 0u);
      ASSERT_LE(piece.length, ckpt::kEncodedFragmentBytesMax);
      at += piece.length;
    }
    ASSERT_EQ(at, from + length);
    EXPECT_LE(pieces.size(), length / limits::kEncodedPieceBytesMin + 1);
  }
}

}  // namespace
}  // namespace ckptd
