// The fuzzer itself: planted bugs must be found. If these pass with the bugs gone from reach, no
// other fuzz test means anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"
#include "tests/fuzz/fuzzer.h"

namespace ckpt::fuzz {
namespace {

// length (4) | CRC32C of the body (4) | body. The canary believes the length.
Bytes canary_input(uint32_t body_bytes) {
  Bytes bytes(8 + body_bytes, std::byte{7});
  std::memcpy(bytes.data(), &body_bytes, 4);
  const uint32_t crc = base::crc32c(ByteView(bytes).subspan(8));
  std::memcpy(bytes.data() + 4, &crc, 4);
  return bytes;
}

void repair_canary(Bytes& bytes) {
  if (bytes.size() < 8) return;
  const uint32_t crc = base::crc32c(ByteView(bytes).subspan(8));
  std::memcpy(bytes.data() + 4, &crc, 4);
}

// Says where the missing check would have let it read.
std::optional<std::string> read_canary(ByteView bytes) {
  if (bytes.size() < 8) return std::nullopt;
  uint32_t length = 0;
  uint32_t crc = 0;
  std::memcpy(&length, bytes.data(), 4);
  std::memcpy(&crc, bytes.data() + 4, 4);
  if (base::crc32c(bytes.subspan(8)) != crc) return std::nullopt;
  if (length > bytes.size() - 8) return "reads beyond the end";
  return std::nullopt;
}

Target canary() {
  return {.name = "canary", .corpus = {canary_input(100)}, .feed = read_canary, .repair = {}};
}

TEST(Canary, ALengthThatIsBelievedIsFound) {
  const auto finding = run(canary(), 1, 4000);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->what, "reads beyond the end");
}

TEST(Canary, ABugBehindAChecksumIsFoundByRepair) {
  Target target = canary();
  // Deeper: the body must change, too, and then nothing but repair makes the checksum right.
  target.feed = [](ByteView bytes) -> std::optional<std::string> {
    const auto what = read_canary(bytes);
    return what && bytes.size() > 8 && bytes[8] == std::byte{0xff} ? what : std::nullopt;
  };
  EXPECT_FALSE(run(target, 1, 20'000).has_value());
  target.repair = repair_canary;
  EXPECT_TRUE(run(target, 1, 20'000).has_value());
}

TEST(Canary, ASeedRepeatsItsFinding) {
  const auto first = run(canary(), 42, 4000);
  const auto again = run(canary(), 42, 4000);
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->input, again->input);
  const auto other = run(canary(), 43, 4000);
  ASSERT_TRUE(other);
  EXPECT_NE(first->input, other->input);
}

TEST(CanaryDeathTest, AnAbortNamesTargetSeedAndInput) {
  Target target = canary();
  target.feed = [](ByteView bytes) -> std::optional<std::string> {
    CKPT_ASSERT(!read_canary(bytes));
    return std::nullopt;
  };
  EXPECT_DEATH(run(target, 42, 4000), "fuzz target canary seed 42 input [0-9]+");
}

}  // namespace
}  // namespace ckpt::fuzz
