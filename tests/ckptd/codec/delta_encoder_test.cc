// Deltas: fragments of a slab encoded against the same range of an earlier version.
#include <gtest/gtest.h>

#include <random>

#include "ckptd/codec/slab_encoder.h"
#include "ckptd/limits.h"
#include "formats/base/crc32c.h"
#include "tests/ckptd/codec/floats.h"

namespace ckptd {
namespace {

using ckpt::DType;

// One unit in one slab, and the earlier version of the unit.
struct TwoVersions {
  ckpt::UnitSpec unit;
  std::vector<std::byte> before;
  std::vector<std::byte> now;

  // Floats that each change a little; with `noise` all their bits change.
  explicit TwoVersions(uint64_t bytes, uint64_t seed, bool noise = false) {
    before = float_bytes(bytes, seed);
    now = noise ? float_bytes(bytes, seed + 1) : before;
    std::mt19937_64 random(seed);
    for (size_t i = 0; i + 4 <= bytes && !noise; i += 4) now[i] ^= std::byte(random() % 16);
    unit.bytes = bytes;
    unit.tensors.push_back({.name = "w", .dtype = DType::kF32, .shape = {bytes / 4}});
  }
  std::vector<ckpt::ExtentFragment> fragments() const {
    return {{.unit = 0, .length = now.size(), .crc32c = ckpt::base::crc32c(now)}};
  }
  EncodePlan plan() const {
    return encode_all(std::make_shared<const std::vector<ckpt::UnitSpec>>(1, unit),
                      /*deltas=*/true);
  }
  // The range as an earlier version that takes `ratio` of its size on disk.
  BasePiece base(const ckpt::UnitRange& range, double ratio) const {
    const ByteView bytes = ByteView(before).subspan(range.offset, range.length);
    return {.range = range,
            .stored_bytes = static_cast<uint64_t>(static_cast<double>(range.length) * ratio),
            .crc32c = ckpt::base::crc32c(bytes),
            .bytes = {bytes.begin(), bytes.end()}};
  }
};

// Decodes the slab as a restore does, and compares it with the unit.
void expect_round_trip(const TwoVersions& two, const SlabEncoder& encoder, ByteView out) {
  ZstdDecoder decoder;
  uint64_t covered = 0;
  for (const ckpt::ExtentFragment& fragment : encoder.fragments()) {
    ASSERT_EQ(fragment.offset, covered);
    covered += fragment.length;
    const ByteView stored = out.subspan(fragment.payload_offset, fragment.stored_bytes());
    EXPECT_EQ(ckpt::base::crc32c(stored), fragment.stored_crc32c());
    std::vector<std::byte> raw(stored.begin(), stored.end());
    if (fragment.codec != 0) {
      raw.resize(fragment.length);
      ASSERT_TRUE(decoder.decode(static_cast<Codec>(fragment.codec), stored, raw).ok());
    }
    if (ckpt::is_delta(fragment.codec)) {
      const ByteView base = ByteView(two.before).subspan(fragment.offset, fragment.length);
      EXPECT_EQ(fragment.base_crc32c, ckpt::base::crc32c(base));
      xor_bytes(raw, base);
    } else {
      EXPECT_EQ(fragment.base_crc32c, 0u);
    }
    EXPECT_EQ(ckpt::base::crc32c(raw), fragment.crc32c);
    const auto now = two.now.begin() + static_cast<ptrdiff_t>(fragment.offset);
    EXPECT_TRUE(std::equal(raw.begin(), raw.end(), now)) << "at byte " << fragment.offset;
  }
  EXPECT_EQ(covered, two.now.size());
}

size_t deltas_of(const SlabEncoder& encoder) {
  return static_cast<size_t>(std::ranges::count_if(
      encoder.fragments(),
      [](const ckpt::ExtentFragment& fragment) { return ckpt::is_delta(fragment.codec); }));
}

TEST(DeltaEncoder, RoundTripsAnyVersion) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937_64 random(seed);
  size_t deltas = 0;
  // A round may produce no delta. The number of rounds is such that every seed produces some.
  for (int round = 0; round < 12 || (deltas <= 4 && round < 100); ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    const TwoVersions two(1 + random() % 3'500'000, random(), random() % 4 == 0);
    const auto fragments = two.fragments();
    SlabEncoder encoder(two.now, fragments, two.plan());
    std::vector<std::byte> out(two.now.size());
    while (!encoder.done()) {
      const uint64_t step = 1 + random() % (4u << 20);
      BasePieces bases;
      for (const ckpt::UnitRange& range : encoder.next_ranges(step)) {
        if (random() % 4 != 0) bases.push_back(two.base(range, 0.1 + 0.1 * double(random() % 9)));
      }
      ASSERT_TRUE(encoder.step(step, out, bases).ok());
    }
    expect_round_trip(two, encoder, out);
    deltas += deltas_of(encoder);
  }
  EXPECT_GT(deltas, 4u) << "or nothing was tried";
}

// next_ranges() names exactly the ranges that the next step() encodes.
TEST(DeltaEncoder, NextRangesAreWhatTheNextStepEncodes) {
  const TwoVersions two(5'000'000, 3);
  const auto fragments = two.fragments();
  SlabEncoder encoder(two.now, fragments, two.plan());
  std::vector<std::byte> out(two.now.size());
  uint64_t covered = 0;
  while (!encoder.done()) {
    for (const ckpt::UnitRange& range : encoder.next_ranges(1'500'000)) {
      EXPECT_EQ(range.offset, covered);
      covered += range.length;
    }
    ASSERT_TRUE(encoder.step(1'500'000, out).ok());
    uint64_t taken = 0;
    for (const ckpt::ExtentFragment& fragment : encoder.fragments()) taken += fragment.length;
    ASSERT_EQ(covered, taken);
  }
  EXPECT_TRUE(encoder.next_ranges(1).empty());
}

TEST(DeltaEncoder, DeltaMustBeSmallerThanBaseByMargin) {
  const TwoVersions two(900'000, 4);
  const auto fragments = two.fragments();
  const ckpt::UnitRange all{0, 0, two.now.size()};
  const auto encoded = [&](double ratio) {
    SlabEncoder encoder(two.now, fragments, two.plan());
    std::vector<std::byte> out(two.now.size());
    EXPECT_TRUE(encoder.step(1 << 20, out, {two.base(all, ratio)}).ok());
    expect_round_trip(two, encoder, out);
    return encoder.fragments().front();
  };
  const ckpt::ExtentFragment delta = encoded(1);
  ASSERT_TRUE(ckpt::is_delta(delta.codec));
  const double ratio = double(delta.encoded_bytes) / double(two.now.size());
  const double least = ratio * limits::kDeltaGain / (limits::kDeltaGain - 1);
  EXPECT_TRUE(ckpt::is_delta(encoded(least * 1.05).codec));
  EXPECT_FALSE(ckpt::is_delta(encoded(least * 0.95).codec));
}

TEST(DeltaEncoder, StoresPiecesUnlikeTheirBaseWithoutDelta) {
  const TwoVersions two(2'000'000, 5, /*noise=*/true);
  const auto fragments = two.fragments();
  SlabEncoder encoder(two.now, fragments, two.plan());
  std::vector<std::byte> out(two.now.size());
  while (!encoder.done()) {
    BasePieces bases;
    for (const auto& range : encoder.next_ranges(1 << 20)) bases.push_back(two.base(range, 0.8));
    ASSERT_TRUE(encoder.step(1 << 20, out, bases).ok());
  }
  EXPECT_EQ(deltas_of(encoder), 0u);
  expect_round_trip(two, encoder, out);
}

// A fragment stored raw may become a base, and a base is one fragment: raw pieces are not merged.
TEST(DeltaEncoder, IncompressiblePiecesAreNotMerged) {
  TwoVersions two(3'000'000, 6);
  two.now = noise_bytes(two.now.size(), 7);
  const auto fragments = two.fragments();
  SlabEncoder encoder(two.now, fragments, two.plan());
  std::vector<std::byte> out(two.now.size());
  while (!encoder.done()) ASSERT_TRUE(encoder.step(1 << 20, out).ok());
  EXPECT_TRUE(encoder.any());
  EXPECT_EQ(encoder.fragments().size(), 3u);
  expect_round_trip(two, encoder, out);
}

}  // namespace
}  // namespace ckptd
