#include "formats/base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/formats/random_bytes.h"

namespace ckpt::base {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, AgreesWithTheVectorsOfRfc3720) {
  std::vector<std::byte> bytes(32, std::byte{0});
  EXPECT_EQ(crc32c(bytes), 0x8a9136aau);
  bytes.assign(32, std::byte{0xff});
  EXPECT_EQ(crc32c(bytes), 0x62a8ab43u);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46dd794eu);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(bytes), 0x113fdb5cu);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, PortableAgreesAtEveryLengthAndAlignment) {
  const std::vector<std::byte> bytes = test::random_bytes(4096 + 64, 1);
  for (size_t begin = 0; begin < 16; ++begin) {
    for (size_t length = 0; length < 1100; ++length) {  // beyond the largest block folded at once
      const ByteView view = ByteView(bytes).subspan(begin, length);
      ASSERT_EQ(crc32c(view, 0x12345678), crc32c_portable(view, 0x12345678))
          << begin << " " << length;
    }
    const ByteView view = ByteView(bytes).subspan(begin, 4096);
    ASSERT_EQ(crc32c(view), crc32c_portable(view));
  }
}

TEST(Crc32c, ContinuesFromAnEarlierPart) {
  const std::vector<std::byte> bytes = test::random_bytes(1000, 2);
  const uint32_t whole = crc32c(bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut += 7) {
    const ByteView first = ByteView(bytes).first(cut);
    const ByteView rest = ByteView(bytes).subspan(cut);
    EXPECT_EQ(crc32c(rest, crc32c(first)), whole);
    EXPECT_EQ(crc32c_portable(rest, crc32c_portable(first)), whole);
    EXPECT_EQ(crc32c_combine(crc32c(first), crc32c(rest), rest.size()), whole);
  }
}

TEST(Crc32c, CombineIsAssociativeForHugeLengths) {
  // crc(A || B || C) does not depend on which join is made first, also where |B| is near 2^64.
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto a = static_cast<uint32_t>(random());
    const auto b = static_cast<uint32_t>(random());
    const auto c = static_cast<uint32_t>(random());
    const uint64_t length_b = random() >> 1;
    const uint64_t length_c = random() >> (1 + random() % 60);
    EXPECT_EQ(crc32c_combine(crc32c_combine(a, b, length_b), c, length_c),
              crc32c_combine(a, crc32c_combine(b, c, length_c), length_b + length_c));
  }
}

TEST(Crc32c, ExtendZerosIsTheCrcOfZeros) {
  const std::vector<std::byte> some = test::random_bytes(100, 4);
  const std::vector<std::byte> zeros(100'000);
  for (const size_t length : {0u, 1u, 7u, 8u, 4095u, 4096u, 99'999u}) {
    const ByteView tail = ByteView(zeros).first(length);
    EXPECT_EQ(crc32c_extend_zeros(crc32c(some), length), crc32c(tail, crc32c(some)));
    EXPECT_EQ(crc32c_extend_zeros(0, length), crc32c(tail));
  }
}

TEST(Crc32c, CopyCopiesAndChecksums) {
  for (const size_t length : {0u, 1u, 511u, 512u, 4096u, 16384u, 16385u, 100'001u}) {
    const std::vector<std::byte> from = test::random_bytes(length, length);
    std::vector<std::byte> to(length);
    EXPECT_EQ(copy_crc32c(to, from, 77), crc32c_portable(from, 77));
    EXPECT_EQ(to, from);
  }
}

TEST(Crc32cDeathTest, CopyOfDifferentSizesAborts) {
  std::vector<std::byte> to(1);
  EXPECT_DEATH(copy_crc32c(to, {}), "to.size\\(\\) == from.size\\(\\)");
}

}  // namespace
}  // namespace ckpt::base
