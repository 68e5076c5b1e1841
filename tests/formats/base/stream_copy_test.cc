#include "formats/base/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "formats/base/crc32c.h"
#include "tests/formats/random_bytes.h"

namespace ckpt::base {
namespace {

// At any alignment of both sides, bytes around the copy stay unchanged.
TEST(StreamCopy, CopiesAndChecksums) {
  constexpr size_t kAround = 64;
  for (const size_t length : {0u, 1u, 511u, 4095u, 4096u, 4097u, 4608u, 5000u, 65'536u, 100'001u}) {
    const std::vector<std::byte> source = test::random_bytes(length + kAround, length);
    for (size_t shift = 0; shift < 17; ++shift) {
      std::vector<std::byte> target(length + 2 * kAround, std::byte{0x5a});
      const ByteView from = ByteView(source).subspan((shift * 7) % kAround, length);
      const MutableByteView to = MutableByteView(target).subspan(shift, length);
      ASSERT_EQ(stream_crc32c(to, from, 77), crc32c(from, 77)) << length << " " << shift;
      ASSERT_TRUE(std::ranges::equal(to, from)) << length << " " << shift;
      const auto untouched = [](std::byte byte) { return byte == std::byte{0x5a}; };
      ASSERT_TRUE(std::ranges::all_of(ByteView(target).first(shift), untouched));
      ASSERT_TRUE(std::ranges::all_of(ByteView(target).subspan(shift + length), untouched));
    }
  }
}

TEST(StreamCopyDeathTest, DifferentSizesAbort) {
  std::vector<std::byte> to(1);
  EXPECT_DEATH(stream_crc32c(to, {}), "to.size\\(\\) == from.size\\(\\)");
}

}  // namespace
}  // namespace ckpt::base
