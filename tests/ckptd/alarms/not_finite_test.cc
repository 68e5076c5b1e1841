#include "ckptd/alarms/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace ckptd {
namespace {

using ckpt::ByteView;
using ckpt::DType;

// Reference: not_finite() by the definition of each float type, one element at a time.
template <typename Word>
bool not_finite(Word word, int exponent_bits, int mantissa_bits) {
  const Word ones = static_cast<Word>((Word{1} << exponent_bits) - 1);
  return static_cast<Word>((word >> mantissa_bits) & ones) == ones;
}

struct Case {
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
};

template <typename Word>
void compare(const Case& type, std::mt19937_64& random) {
  for (int round = 0; round < 200; ++round) {
    std::vector<Word> words(random() % 300);
    uint64_t expected = 0;
    for (Word& word : words) {
      word = static_cast<Word>(random());
      // Also values that differ from infinity in one bit.
      const Word infinity =
          static_cast<Word>(((Word{1} << type.exponent_bits) - 1) << type.mantissa_bits);
      if (random() % 4 == 0) word = infinity;
      if (random() % 4 == 0) word ^= static_cast<Word>(Word{1} << (random() % (8 * sizeof word)));
      expected += not_finite(word, type.exponent_bits, type.mantissa_bits);
    }
    // The payload begins at every alignment.
    std::vector<std::byte> bytes(words.size() * sizeof(Word) + round % 8);
    if (!words.empty()) {
      std::memcpy(bytes.data() + round % 8, words.data(), words.size() * sizeof(Word));
    }
    EXPECT_EQ(count_not_finite(type.dtype, ByteView(bytes).subspan(round % 8)), expected);
  }
}

TEST(NotFinite, CountsNotFiniteValuesOfEachType) {
  std::mt19937_64 random(static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  compare<uint16_t>({DType::kF16, 5, 10}, random);
  compare<uint16_t>({DType::kBF16, 8, 7}, random);
  compare<uint32_t>({DType::kF32, 8, 23}, random);
  compare<uint64_t>({DType::kF64, 11, 52}, random);
  const std::vector<std::byte> ones(64, std::byte{0xff});
  EXPECT_EQ(count_not_finite(DType::kI32, ones), 0u) << "an integer has no exponent";
  EXPECT_EQ(count_not_finite(DType::kF32, ones), 16u);
}

// Units: unit 0 has 3 bytes without a tensor, 1000 F32, 40 integers and 500 BF16.
class NotFiniteScanTest : public testing::Test {
 protected:
  NotFiniteScanTest() {
    std::vector<ckpt::UnitSpec> units(2);
    units[1].bytes = 3 + 4000 + 160 + 1000;
    units[1].tensors = {{"f", DType::kF32, {1000}, 3},
                        {"i", DType::kI32, {40}, 4003},
                        {"b", DType::kBF16, {500}, 4163}};
    units_ = std::make_shared<const std::vector<ckpt::UnitSpec>>(units);
    bytes_.resize(units[1].bytes);
  }
  void put_float(size_t index, float value) {
    std::memcpy(bytes_.data() + 3 + 4 * index, &value, sizeof value);
  }
  // Scans fragments [cut, next cut) in pieces of `piece` bytes, as check_payload() does.
  uint64_t found(const std::vector<uint64_t>& cuts, uint64_t piece) {
    NotFiniteScan scan(units_);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const uint64_t length = cuts[i + 1] - cuts[i];
      const ckpt::ExtentFragment fragment{.unit = 1, .offset = cuts[i], .length = length};
      for (uint64_t from = 0; from < length; from += piece) {
        scan.check(fragment, ByteView(bytes_).subspan(cuts[i], length), from,
                   std::min(from + piece, length));
      }
    }
    EXPECT_TRUE(scan.found().empty() || scan.found().begin()->first == 1);
    return scan.found().empty() ? 0 : scan.found().at(1);
  }
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> units_;
  std::vector<std::byte> bytes_;
};

TEST_F(NotFiniteScanTest, FindsEachValueOnceInAnyPieces) {
  put_float(0, std::numeric_limits<float>::quiet_NaN());
  put_float(500, -std::numeric_limits<float>::infinity());
  put_float(999, std::nanf("7"));
  std::fill(bytes_.begin() + 4003, bytes_.begin() + 4163, std::byte{0xff});  // integers
  bytes_[4163 + 2 * 499] = std::byte{0x80};                                  // BF16 infinity
  bytes_[4163 + 2 * 499 + 1] = std::byte{0x7f};
  const uint64_t end = bytes_.size();
  for (const uint64_t piece : {1ul, 2ul, 3ul, 5ul, 64ul, 1000ul, 100'000ul}) {
    EXPECT_EQ(found({0, end}, piece), 4u) << piece;
    EXPECT_EQ(found({0, 2003, 4163, end}, piece), 4u) << piece;
  }
}

TEST_F(NotFiniteScanTest, IgnoresElementsSplitBetweenFragments) {
  put_float(500, std::numeric_limits<float>::infinity());
  EXPECT_EQ(found({0, 2003 + 2, bytes_.size()}, 64), 0u);
  put_float(501, std::numeric_limits<float>::infinity());
  EXPECT_EQ(found({0, 2003 + 2, bytes_.size()}, 64), 1u);
}

}  // namespace
}  // namespace ckptd
