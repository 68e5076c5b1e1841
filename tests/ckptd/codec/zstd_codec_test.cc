// Every codec decodes to the exact input, and reports an error or stays in bounds on other bytes.
#include "ckptd/codec/zstd_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/codec/codec_choice.h"
#include "ckptd/limits.h"
#include "tests/ckptd/codec/floats.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

std::optional<std::vector<std::byte>> encoded(Codec codec, ByteView raw) {
  ZstdEncoder encoder(limits::kZstdLevel);
  std::vector<std::byte> out(raw.size());
  const auto size = encoder.encode(codec, raw, out);
  if (!size) return std::nullopt;
  out.resize(*size);
  return out;
}

class EveryCodec : public testing::TestWithParam<Codec> {};
INSTANTIATE_TEST_SUITE_P(Zstd, EveryCodec,
                         testing::Values(Codec::kZstd, Codec::kZstdPlanes2, Codec::kZstdPlanes4,
                                         Codec::kZstdPlanes8),
                         [](const auto& codec) {
                           return fmt::format("planes{}", ckpt::plane_count(codec.param));
                         });

// Any length: the bytes after the last whole element are restored, too.
TEST_P(EveryCodec, RoundTripsAnyLength) {
  size_t smaller = 0;
  for (const size_t bytes : {1'000u, 4'096u, 65'537u, 300'003u, 1'048'575u, 1'048'576u}) {
    std::vector<std::byte> raw = float_bytes(bytes, bytes);
    for (size_t i = 0; i < bytes / 2; ++i) raw[i] &= std::byte{0x0f};
    const auto out = encoded(GetParam(), raw);
    if (!out) continue;
    ++smaller;
    std::vector<std::byte> back(bytes);
    ZstdDecoder decoder;
    const Status decoded = decoder.decode(GetParam(), *out, back);
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_EQ(back, raw);
  }
  EXPECT_EQ(smaller, 6u);
}

TEST_P(EveryCodec, LeavesIncompressibleBytesRaw) {
  EXPECT_FALSE(encoded(GetParam(), noise_bytes(100'000, 1)));
}

// Damage behind the checksums, or a hostile store: decode() fails or fills only the given memory.
TEST_P(EveryCodec, DecodesHostileBytesSafely) {
  const std::vector<std::byte> raw = float_bytes(20'000, 3);
  std::vector<std::byte> even = raw;
  for (std::byte& byte : even) byte &= std::byte{0x1f};
  std::vector<std::byte> good = encoded(GetParam(), even).value();
  ZstdDecoder decoder;
  std::vector<std::byte> back(even.size());
  for (size_t length = 0; length < good.size(); length += 1 + good.size() / 300) {
    const std::vector<std::byte> start(good.begin(), good.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_FALSE(decoder.decode(GetParam(), start, back).ok()) << length;
  }
  for (size_t bit = 0; bit < good.size() * 8; bit += bit < 160 ? 1 : 997) {
    const std::byte mask{static_cast<uint8_t>(1u << (bit % 8))};
    good[bit / 8] ^= mask;
    (void)decoder.decode(GetParam(), good, back);
    good[bit / 8] ^= mask;
  }
  for (uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_FALSE(decoder.decode(GetParam(), noise_bytes(seed, seed), back).ok()) << seed;
  }
  ASSERT_TRUE(decoder.decode(GetParam(), good, back).ok()) << "it still works";
  EXPECT_EQ(back, even);
}

TEST_P(EveryCodec, RefusesWrongFrameLengthAndSecondFrame) {
  std::vector<std::byte> zeros(5'000);
  std::vector<std::byte> good = encoded(GetParam(), zeros).value();
  ZstdDecoder decoder;
  std::vector<std::byte> shorter(4'999);
  const Status refused = decoder.decode(GetParam(), good, shorter);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("are no zstd frame of 4999 bytes"));
  std::vector<std::byte> longer(10'000);
  EXPECT_FALSE(decoder.decode(GetParam(), good, longer).ok());
  const std::vector<std::byte> once = good;
  good.insert(good.end(), once.begin(), once.end());
  EXPECT_FALSE(decoder.decode(GetParam(), good, longer).ok());
}

TEST(ZstdCodec, PlanesMakeFloatsSmaller) {
  const std::vector<std::byte> raw = float_bytes(1 << 20, 1);
  const auto planes = encoded(Codec::kZstdPlanes4, raw);
  const auto plain = encoded(Codec::kZstd, raw);
  ASSERT_TRUE(planes.has_value());
  EXPECT_LT(planes->size(), raw.size() * 9 / 10);
  EXPECT_LT(planes->size(), plain ? plain->size() : raw.size());
}

TEST(CodecChoiceTest, ParsesCodecNamesOnly) {
  EXPECT_EQ(parse_codec_choice("none").value(), CodecChoice::kNone);
  EXPECT_EQ(parse_codec_choice("zstd").value(), CodecChoice::kZstd);
  EXPECT_EQ(parse_codec_choice("delta").value(), CodecChoice::kDelta);
  EXPECT_EQ(parse_codec_choice("auto").error().message,
            "codec auto was removed: use none, or zstd where the disk is slower than about 1 GB/s");
  EXPECT_THAT(parse_codec_choice("gzip").error().message,
              HasSubstr("codec gzip: none, zstd or delta"));
}

}  // namespace
}  // namespace ckptd
