#include "formats/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "formats/base/crc32c.h"
#include "formats/codec.h"
#include "tests/formats/random_bytes.h"
#include "tests/formats/samples.h"

namespace ckpt {
namespace {

using ::testing::HasSubstr;

TEST(SegmentHeader, RoundTrips) {
  const std::vector<std::byte> block = test::encoded(test::sample_segment_header());
  const SegmentHeader back = decode_segment_header(block).value();
  EXPECT_EQ(back.store, test::sample_segment_header().store);
  EXPECT_EQ(back.segment, 3u);
  EXPECT_EQ(back.bytes, 1u << 30);
  EXPECT_EQ(back.created_ns, 77u);
}

TEST(SegmentHeader, NewerVersionIsRefused) {
  std::vector<std::byte> block = test::encoded(test::sample_segment_header());
  base::store(block.data() + 8, kSegmentFormatVersion + 1);
  const Error error = decode_segment_header(block).error();
  EXPECT_EQ(error.code, ErrorCode::kVersionMismatch);
  EXPECT_EQ(error.message, "segment header: format version 2, this program knows 1");
}

TEST(ExtentHeader, RoundTripsWithAnyNumberOfFragments) {
  for (const size_t fragments : {1u, 2u, 99u, 100u, 5000u}) {
    const ExtentHeader header = test::sample_extent_header(fragments);
    std::vector<std::byte> bytes(extent_header_bytes(header.fragments));
    const uint32_t crc = encode_extent_header(header, bytes);
    EXPECT_EQ(base::load<uint32_t>(bytes.data() + 12), crc);
    EXPECT_EQ(decode_extent_header(bytes).value(), header);
    // Bytes after the header do not matter.
    bytes.resize(bytes.size() + kBlockBytes, std::byte{0xee});
    EXPECT_EQ(decode_extent_header(bytes).value(), header);
  }
}

// Version 2 only if a fragment is encoded, so that older programs can read all other extents.
TEST(ExtentHeader, RoundTripsWithEncodedFragments) {
  for (const size_t fragments : {1u, 2u, 70u, 71u, 5000u}) {
    ExtentHeader header = test::sample_extent_header(fragments);
    EXPECT_EQ(base::load<uint32_t>(test::encoded(header).data() + 8), 1u);
    header = test::sample_encoded_extent_header(fragments);
    const std::vector<std::byte> bytes = test::encoded(header);
    EXPECT_EQ(base::load<uint32_t>(bytes.data() + 8), 2u);
    EXPECT_EQ(decode_extent_header(bytes).value(), header);
  }
}

TEST(ExtentHeader, RoundTripsWithDeltas) {
  for (const size_t fragments : {1u, 2u, 70u, 71u}) {
    const ExtentHeader header = test::sample_delta_extent_header(fragments);
    const std::vector<std::byte> bytes = test::encoded(header);
    EXPECT_EQ(base::load<uint32_t>(bytes.data() + 8), 3u);
    EXPECT_EQ(decode_extent_header(bytes).value(), header);
    // A header of version 2 cannot have deltas.
    std::vector<std::byte> older = bytes;
    base::store(older.data() + 8, uint32_t{2});
    base::store(older.data() + 12, uint32_t{0});
    base::store(older.data() + 12, base::crc32c(older));
    EXPECT_THAT(decode_extent_header(older).error().message,
                HasSubstr("of version 2, with fragments of version 3"));
  }
}

TEST(ExtentHeader, TakesWholeBlocks) {
  std::vector<ExtentFragment> fragments;
  EXPECT_EQ(extent_header_bytes(fragments), kBlockBytes);
  fragments.resize((kBlockBytes - 128) / 40);
  EXPECT_EQ(extent_header_bytes(fragments), kBlockBytes);
  fragments.resize(fragments.size() + 1);
  EXPECT_EQ(extent_header_bytes(fragments), 2 * kBlockBytes);
  fragments.resize((kBlockBytes - 128) / 56);
  fragments.front().codec = 1;
  EXPECT_EQ(extent_header_bytes(fragments), kBlockBytes);
  fragments.resize(fragments.size() + 1);
  EXPECT_EQ(extent_header_bytes(fragments), 2 * kBlockBytes);
}

TEST(ExtentHeader, ErrorNamesNeededBytesIfTruncated) {
  const std::vector<std::byte> bytes = test::encoded(test::sample_extent_header(500));
  const Error error = decode_extent_header(ByteView(bytes).first(kBlockBytes)).error();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message, "extent header: takes 20480 bytes, 4096 were given");
}

// The checksum is right in all of these headers: their contents are checked nevertheless.
struct BadExtent {
  std::string name;
  std::function<void(ExtentHeader&)> spoil;
  std::string says;
};
class ExtentHeaderRefuses : public testing::TestWithParam<BadExtent> {};

TEST_P(ExtentHeaderRefuses, InvalidContent) {
  ExtentHeader header = test::sample_extent_header(3);
  GetParam().spoil(header);
  const Result<ExtentHeader> decoded = decode_extent_header(test::encoded(header));
  ASSERT_FALSE(decoded.ok());
  EXPECT_THAT(decoded.error().message, HasSubstr(GetParam().says));
}
INSTANTIATE_TEST_SUITE_P(
    Each, ExtentHeaderRefuses,
    testing::Values(
        BadExtent{"Overlap", [](ExtentHeader& h) { h.fragments[1].payload_offset = 99; },
                  "fragment 1 of unit number 1: overlaps"},
        BadExtent{"Order", [](ExtentHeader& h) { std::swap(h.fragments[0], h.fragments[1]); },
                  "fragment 1 of unit number 0: overlaps"},
        BadExtent{"Beyond", [](ExtentHeader& h) { h.payload_bytes = 300; }, "fragment 2"},
        BadExtent{"Overflow", [](ExtentHeader& h) { h.fragments[2].length = ~0ull; }, "overflows"},
        BadExtent{"NoBytes", [](ExtentHeader& h) { h.fragments[0].length = 0; }, "empty"},
        BadExtent{"Codec", [](ExtentHeader& h) { h.fragments[0].codec = 99; }, "unknown codec 99"},
        BadExtent{"EncodedNothing", [](ExtentHeader& h) { h.fragments[0].codec = 1; },
                  "fragment 0 of unit number 0: 0 encoded bytes of 100"},
        BadExtent{"EncodedLarger",
                  [](ExtentHeader& h) {
                    h.fragments[0].codec = 3;
                    h.fragments[0].encoded_bytes = 100;
                  },
                  "100 encoded bytes of 100"},
        BadExtent{"EncodedHuge",
                  [](ExtentHeader& h) {
                    h.fragments[2].codec = 1;
                    h.fragments[2].encoded_bytes = 10;
                    h.fragments[2].length = kEncodedFragmentBytesMax + 1;
                  },
                  "1048577 bytes are encoded in one piece, the most is 1048576"},
        BadExtent{"EncodedWithoutACodec",
                  [](ExtentHeader& h) {
                    h.fragments[0].codec = 1;
                    h.fragments[0].encoded_bytes = 10;
                    h.fragments[1].encoded_bytes = 10;
                  },
                  "10 encoded bytes, without a codec"},
        BadExtent{"BaseOfNoDelta",
                  [](ExtentHeader& h) {
                    h.fragments[0].codec = 1;
                    h.fragments[0].encoded_bytes = 10;
                    h.fragments[0].base_crc32c = 1;
                  },
                  "fragment 0 of unit number 0: it has a base, and is no delta"},
        BadExtent{"NoPayload", [](ExtentHeader& h) { h.payload_bytes = 0; }, "payload of 0 bytes"},
        BadExtent{"HugePayload", [](ExtentHeader& h) { h.payload_bytes = ~0ull; }, "payload of"},
        BadExtent{"Place", [](ExtentHeader& h) { h.offset = 4097; }, "at offset 4097"}),
    [](const auto& bad) { return bad.param.name; });

TEST(PayloadCrc, EqualsTheChecksumOfTheBytes) {
  const std::vector<std::byte> data = test::random_bytes(1000, 9);
  std::vector<std::byte> payload(2 * kBlockBytes);
  std::vector<ExtentFragment> fragments;
  for (const auto& [offset, length] : {std::pair{0, 100}, {100, 1}, {4000, 500}, {7000, 1000}}) {
    const ByteView from = ByteView(data).first(length);
    std::copy(from.begin(), from.end(), payload.begin() + offset);
    fragments.push_back({.length = static_cast<uint64_t>(length),
                         .payload_offset = static_cast<uint64_t>(offset),
                         .crc32c = base::crc32c(from)});
    EXPECT_EQ(payload_crc32c(fragments, payload.size()), base::crc32c(payload));
  }
  // The CRC of an encoded fragment is that of its stored bytes.
  ExtentFragment& last = fragments.back();
  last.codec = 1;
  last.encoded_bytes = last.length;
  last.encoded_crc32c = last.crc32c;
  last.length = 7'000;
  last.crc32c = 5;
  EXPECT_EQ(payload_crc32c(fragments, payload.size()), base::crc32c(payload));
  EXPECT_EQ(payload_crc32c({}, kBlockBytes), base::crc32c(std::vector<std::byte>(kBlockBytes)));
}

}  // namespace
}  // namespace ckpt
