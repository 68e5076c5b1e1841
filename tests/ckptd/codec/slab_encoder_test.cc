#include "ckptd/codec/slab_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "tests/ckptd/codec/floats.h"

namespace ckptd {
namespace {

using ckpt::DType;
using testing::HasSubstr;
using testing::SizeIs;

// A slab as a trainer seals it: large fragments at block boundaries.
struct Slab {
  std::vector<std::byte> payload;
  std::vector<ckpt::ExtentFragment> fragments;
  std::vector<ckpt::UnitSpec> units;

  void add(DType dtype, const std::vector<std::byte>& bytes) {
    const auto unit = static_cast<ckpt::UnitId>(units.size());
    ckpt::UnitSpec& spec = units.emplace_back();
    spec.bytes = bytes.size();
    spec.tensors.push_back(
        {.name = "w", .dtype = dtype, .shape = {bytes.size() / ckpt::dtype_bytes(dtype)}});
    const uint64_t align = bytes.size() >= ckpt::kBlockBytes ? ckpt::kBlockBytes : 8;
    const uint64_t at = ckpt::base::align_up(payload.size(), align);
    payload.resize(at);
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    fragments.push_back({.unit = unit,
                         .length = bytes.size(),
                         .payload_offset = at,
                         .crc32c = ckpt::base::crc32c(bytes)});
  }
  SlabEncoder encoder() const {
    return encoder(encode_all(std::make_shared<const std::vector<ckpt::UnitSpec>>(units)));
  }
  SlabEncoder encoder(EncodePlan plan) const { return {payload, fragments, std::move(plan)}; }
};

Status run(SlabEncoder& encoder, std::vector<std::byte>& out, uint64_t step = 1 << 20) {
  while (!encoder.done()) CKPT_TRY(encoder.step(step, out));
  return {};
}

// Every fragment's bytes again, from what would lie on the disk.
void expect_round_trip(const Slab& slab, const SlabEncoder& encoder, ByteView out) {
  std::vector<std::vector<std::byte>> units(slab.units.size());
  ZstdDecoder decoder;
  uint64_t at = 0;
  for (const ckpt::ExtentFragment& fragment : encoder.fragments()) {
    ASSERT_EQ(fragment.payload_offset, at) << "one after the other";
    at += fragment.stored_bytes();
    const ByteView stored = out.subspan(fragment.payload_offset, fragment.stored_bytes());
    EXPECT_EQ(ckpt::base::crc32c(stored), fragment.stored_crc32c());
    EXPECT_TRUE(ckpt::check_encoding(fragment.codec, fragment.length, fragment.encoded_bytes,
                                     fragment.encoded_crc32c)
                    .ok());
    std::vector<std::byte> raw(stored.begin(), stored.end());
    if (fragment.codec != 0) {
      raw.resize(fragment.length);
      const Status back = decoder.decode(static_cast<Codec>(fragment.codec), stored, raw);
      ASSERT_TRUE(back.ok()) << back.error().message;
    }
    EXPECT_EQ(ckpt::base::crc32c(raw), fragment.crc32c);
    std::vector<std::byte>& unit = units[fragment.unit];
    ASSERT_EQ(fragment.offset, unit.size());
    unit.insert(unit.end(), raw.begin(), raw.end());
  }
  EXPECT_EQ(at, encoder.stored_bytes());
  EXPECT_LE(at, slab.payload.size());
  for (const ckpt::ExtentFragment& fragment : slab.fragments) {
    const auto begin = slab.payload.begin() + static_cast<ptrdiff_t>(fragment.payload_offset);
    ASSERT_EQ(units[fragment.unit].size(), fragment.length);
    EXPECT_TRUE(std::equal(units[fragment.unit].begin(), units[fragment.unit].end(), begin))
        << "unit " << fragment.unit;
  }
}

TEST(SlabEncoder, RoundTripsAnySlab) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937_64 random(seed);
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    Slab slab;
    for (uint64_t i = 1 + random() % 8; i > 0; --i) {
      const uint64_t bytes = 1 + random() % (random() % 3 == 0 ? 2'500'000 : 20'000);
      const auto dtype = static_cast<DType>(random() % ckpt::kDTypeCountOfVersion8);
      std::vector<std::byte> content =
          random() % 3 == 0 ? noise_bytes(bytes, random()) : float_bytes(bytes, random());
      if (random() % 2 == 0) std::fill_n(content.begin(), content.size() / 2, std::byte{0});
      slab.add(dtype, content);
    }
    SlabEncoder encoder = slab.encoder();
    std::vector<std::byte> out(slab.payload.size());
    const Status encoded = run(encoder, out, 1 + random() % (4 << 20));
    ASSERT_TRUE(encoded.ok()) << encoded.error().message;
    expect_round_trip(slab, encoder, out);
  }
}

TEST(SlabEncoder, IncompressibleFragmentStaysOneFragment) {
  Slab slab;
  slab.add(DType::kU8, noise_bytes(3'000'000, 1));
  slab.add(DType::kF32, float_bytes(900, 2));
  SlabEncoder encoder = slab.encoder();
  std::vector<std::byte> out(slab.payload.size());
  ASSERT_TRUE(run(encoder, out).ok());
  EXPECT_FALSE(encoder.any()) << "so it is written from where it lies";
  EXPECT_THAT(encoder.fragments(), SizeIs(2));
  expect_round_trip(slab, encoder, out);
}

TEST(SlabEncoder, EncodesOnlyChosenUnits) {
  Slab slab;
  for (uint64_t seed = 1; seed <= 3; ++seed) slab.add(DType::kF32, float_bytes(3 << 20, seed));
  const auto units = std::make_shared<const std::vector<ckpt::UnitSpec>>(slab.units);
  SlabEncoder encoder = slab.encoder(
      std::make_shared<const UnitsToEncode>(UnitsToEncode{units, {false, true, false}}));
  std::vector<std::byte> out(slab.payload.size());
  ASSERT_TRUE(run(encoder, out).ok());
  expect_round_trip(slab, encoder, out);
  EXPECT_THAT(encoder.fragments(), SizeIs(1 + 3 + 1)) << "the others are not cut";
  for (const ckpt::ExtentFragment& fragment : encoder.fragments()) {
    EXPECT_EQ(fragment.codec != 0, fragment.unit == 1);
  }
}

TEST(SlabEncoder, RefusesBytesChangedAfterSeal) {
  Slab slab;
  slab.add(DType::kF32, float_bytes(2'000'000, 1));
  slab.payload[1'500'000] ^= std::byte{1};
  SlabEncoder encoder = slab.encoder();
  std::vector<std::byte> out(slab.payload.size());
  const Status refused = run(encoder, out);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ckpt::ErrorCode::kCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("unit 0 bytes [0, 2000000) have CRC32C"));
}

TEST(EncodeChosen, FollowsTheChoiceOfEachUnit) {
  const auto units = std::make_shared<const std::vector<ckpt::UnitSpec>>(3);
  EXPECT_EQ(encode_chosen(units, std::vector<CodecChoice>(3, CodecChoice::kNone)), nullptr);
  const EncodePlan zstd =
      encode_chosen(units, {CodecChoice::kNone, CodecChoice::kZstd, CodecChoice::kNone});
  ASSERT_NE(zstd, nullptr);
  EXPECT_EQ(zstd->chosen, (std::vector<bool>{false, true, false}));
  EXPECT_FALSE(zstd->may_be_delta(1));
  const EncodePlan deltas =
      encode_chosen(units, {CodecChoice::kDelta, CodecChoice::kZstd, CodecChoice::kNone});
  ASSERT_NE(deltas, nullptr);
  EXPECT_EQ(deltas->chosen, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(deltas->deltas, (std::vector<bool>{true, false, false}));
  EXPECT_TRUE(deltas->may_be_delta(0));
  EXPECT_FALSE(deltas->may_be_delta(1));
}

}  // namespace
}  // namespace ckptd
