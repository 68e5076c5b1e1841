#include "ckptd/restore/extent_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// An extent of three fragments with gaps, as it lies on disk.
struct Sample {
  ckpt::ExtentHeader header;
  uint32_t header_bytes = 0;
  uint32_t header_crc32c = 0;
  std::vector<std::byte> bytes;
};

Sample make_sample() {
  Sample sample;
  ckpt::ExtentHeader& header = sample.header;
  header.store = {.low = 1, .high = 2};
  header.segment = 3;
  header.offset = 8192;
  header.snapshot = {.run = 7, .lineage = 1, .epoch = 1, .step = 5};
  header.payload_bytes = 9000;
  const uint64_t padded = ckpt::base::align_up(header.payload_bytes, ckpt::kBlockBytes);
  std::vector<std::byte> payload(padded);
  const auto add = [&](ckpt::UnitId unit, uint64_t at, uint64_t length) {
    for (uint64_t i = 0; i < length; ++i) payload[at + i] = static_cast<std::byte>(i * 7 + unit);
    const auto crc = ckpt::base::crc32c(ckpt::ByteView(payload).subspan(at, length));
    header.fragments.push_back(
        {.unit = unit, .length = length, .payload_offset = at, .crc32c = crc});
  };
  add(4, 0, 1000);
  add(5, 1000, 500);
  add(6, 4096, 4904);
  header.payload_crc32c = ckpt::base::crc32c(payload);
  sample.header_bytes = static_cast<uint32_t>(ckpt::extent_header_bytes(header.fragments));
  sample.bytes.resize(sample.header_bytes);
  sample.header_crc32c = ckpt::encode_extent_header(header, sample.bytes);
  sample.bytes.insert(sample.bytes.end(), payload.begin(), payload.end());
  return sample;
}

ExtentCheck make_check(const Sample& sample) {
  return {sample.header, sample.header_bytes, sample.header_crc32c};
}

// Feeds the bytes in pieces of random lengths.
std::vector<ExtentCheck::Finding> check_in_pieces(const Sample& sample, std::mt19937_64& random) {
  ExtentCheck check = make_check(sample);
  EXPECT_EQ(check.bytes(), sample.bytes.size());
  ckpt::ByteView rest = sample.bytes;
  while (!rest.empty()) {
    const size_t length = std::min<size_t>(rest.size(), 1 + random() % 3000);
    check.feed(rest.first(length));
    rest = rest.subspan(length);
  }
  return check.finish();
}

class ExtentCheckTest : public testing::Test {
 protected:
  const uint64_t seed_ = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937_64 random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, testing::Message() << "seed " << seed_};
};

TEST_F(ExtentCheckTest, IntactExtentPassesInPiecesOfAnySize) {
  const Sample sample = make_sample();
  for (int i = 0; i < 20; ++i) EXPECT_THAT(check_in_pieces(sample, random_), IsEmpty());
}

TEST_F(ExtentCheckTest, FlippedByteBlamesItsUnit) {
  Sample sample = make_sample();
  for (size_t at = 0; at < sample.bytes.size(); at += 1 + random_() % 40) {
    sample.bytes[at] ^= std::byte{0x40};
    const auto damages = check_in_pieces(sample, random_);
    sample.bytes[at] ^= std::byte{0x40};
    ckpt::UnitId unit = 4;  // header, gap and padding: the first
    if (at >= sample.header_bytes) {
      const uint64_t payload = at - sample.header_bytes;
      if (payload >= 1000 && payload < 1500) unit = 5;
      if (payload >= 4096 && payload < 9000) unit = 6;
    }
    ASSERT_EQ(damages.size(), 1u) << "byte " << at;
    EXPECT_EQ(damages[0].unit, unit) << "byte " << at;
    EXPECT_THAT(damages[0].reason, HasSubstr("segment 3 offset"));
  }
}

TEST_F(ExtentCheckTest, UnreadableBytesBlameEveryUnitInRange) {
  const Sample sample = make_sample();
  const auto check = [&](uint64_t from, uint64_t to) {
    ExtentCheck extent = make_check(sample);
    const ckpt::ByteView bytes = sample.bytes;
    extent.feed(bytes.first(from));
    extent.skip(to - from, "input/output error", ExtentCheck::Missing::kLost);
    extent.feed(bytes.subspan(to));
    std::vector<ckpt::UnitId> units;
    for (const auto& damage : extent.finish()) {
      units.push_back(damage.unit.value());
      EXPECT_THAT(damage.reason, HasSubstr("input/output error"));
    }
    return units;
  };
  using Units = std::vector<ckpt::UnitId>;
  const uint64_t payload = sample.header_bytes;
  EXPECT_EQ(check(0, 100), (Units{4}));
  EXPECT_EQ(check(0, sample.bytes.size()), (Units{4, 5, 6}));
  EXPECT_EQ(check(payload + 100, payload + 200), (Units{4}));
  EXPECT_EQ(check(payload + 900, payload + 1100), (Units{4, 5}));
  EXPECT_EQ(check(payload + 1499, payload + 4096), (Units{5}));
  EXPECT_EQ(check(payload + 2000, payload + 3000), (Units{4}));  // a gap
  EXPECT_EQ(check(payload + 4095, payload + 4097), (Units{6}));
  EXPECT_EQ(check(payload + 8999, sample.bytes.size()), (Units{6}));
}

TEST_F(ExtentCheckTest, DamageOutweighsRefusedReads) {
  Sample sample = make_sample();
  sample.bytes[sample.header_bytes + 600] ^= std::byte{1};  // of unit 4
  ExtentCheck extent = make_check(sample);
  const ckpt::ByteView bytes = sample.bytes;
  extent.skip(100, "too many open files", ExtentCheck::Missing::kUnchecked);
  extent.feed(bytes.subspan(100, sample.header_bytes + 1000));
  extent.skip(bytes.size() - sample.header_bytes - 1100, "too many open files",
              ExtentCheck::Missing::kUnchecked);
  std::map<ckpt::UnitId, bool> damaged;
  for (const auto& finding : extent.finish()) damaged[finding.unit.value()] = finding.damage;
  EXPECT_EQ(damaged, (std::map<ckpt::UnitId, bool>{{4, true}, {5, false}, {6, false}}));
}

TEST_F(ExtentCheckTest, MismatchedHeaderNamesTheDifferingField) {
  const Sample sample = make_sample();
  const auto reason = [&](const std::function<void(ckpt::ExtentHeader&)>& change) {
    Sample other = sample;
    change(other.header);
    ExtentCheck check = make_check(other);
    check.feed(other.bytes);
    const auto damages = check.finish();
    return damages.empty() ? std::string("none") : damages.front().reason;
  };
  EXPECT_THAT(reason([](auto& header) { header.store.low = 9; }), HasSubstr("store differs"));
  EXPECT_THAT(reason([](auto& header) { header.segment = 9; }), HasSubstr("segment differs"));
  EXPECT_THAT(reason([](auto& header) { header.offset = 4096; }), HasSubstr("offset differs"));
  EXPECT_THAT(reason([](auto& header) { header.snapshot.step = 6; }), HasSubstr("snapshot"));
  EXPECT_THAT(reason([](auto& header) { header.rank = 1; }), HasSubstr("rank differs"));
  EXPECT_THAT(reason([](auto& header) { header.payload_crc32c ^= 1; }), HasSubstr("payload CRC"));
  EXPECT_THAT(reason([](auto& header) { header.fragments[1].crc32c ^= 1; }),
              HasSubstr("fragment table differs"));
}

}  // namespace
}  // namespace ckptd
