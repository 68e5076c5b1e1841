// FragmentLedger against a naive model that marks every byte.
#include "ckptd/ingest/fragment_ledger.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace ckptd {
namespace {

using ckpt::UnitId;
using ckpt::UnitRange;

constexpr uint32_t kLedgerUnits = 3;
constexpr uint64_t kLedgerBytes = 24;

enum class ByteState : uint8_t { kForeign, kDeclared, kSealed };

class ByteModel {
 public:
  explicit ByteModel(const std::vector<UnitRange>& declared) : declared_(declared) {
    for (const UnitRange& range : declared) mark(range, ByteState::kDeclared);
  }
  // Within one declared range, and none of its bytes sealed before.
  bool seal(const UnitRange& range) {
    const auto holds = [&](const UnitRange& one) {
      return one.unit == range.unit && range.offset >= one.offset &&
             range.offset + range.length <= one.offset + one.length;
    };
    if (range.length == 0 || std::none_of(declared_.begin(), declared_.end(), holds)) return false;
    for (uint64_t i = 0; i < range.length; ++i) {
      if (at(range.unit, range.offset + i) != ByteState::kDeclared) return false;
    }
    mark(range, ByteState::kSealed);
    return true;
  }
  bool is_missing(UnitId unit, uint64_t offset) { return at(unit, offset) == ByteState::kDeclared; }
  bool complete() const {
    return std::find(bytes_.begin(), bytes_.end(), ByteState::kDeclared) == bytes_.end();
  }

 private:
  ByteState& at(UnitId unit, uint64_t offset) { return bytes_[unit * kLedgerBytes + offset]; }
  void mark(const UnitRange& range, ByteState byte) {
    for (uint64_t i = 0; i < range.length; ++i) at(range.unit, range.offset + i) = byte;
  }

  const std::vector<UnitRange> declared_;
  std::vector<ByteState> bytes_ =
      std::vector<ByteState>(kLedgerUnits * kLedgerBytes, ByteState::kForeign);
};

class FragmentLedgerProperty : public testing::TestWithParam<uint32_t> {
 protected:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  // Disjoint; some meet, some leave gaps; in no order.
  std::vector<UnitRange> random_ranges() {
    std::vector<UnitRange> ranges;
    for (UnitId unit = 0; unit < kLedgerUnits; ++unit) {
      for (uint64_t begin = below(4); begin < kLedgerBytes;) {
        const uint64_t length = std::min(1 + below(8), kLedgerBytes - begin);
        ranges.push_back({unit, begin, length});
        begin += length + (below(2) == 0 ? 0 : below(5));
      }
    }
    std::shuffle(ranges.begin(), ranges.end(), random_);
    return ranges;
  }
  // A declared one, a part of one, or anything.
  UnitRange random_seal(const std::vector<UnitRange>& declared) {
    const UnitRange whole = declared[below(declared.size())];
    if (below(3) == 0) return whole;
    if (below(4) == 0) {
      const uint64_t offset = below(kLedgerBytes);
      return {static_cast<UnitId>(below(kLedgerUnits)), offset, below(kLedgerBytes - offset + 1)};
    }
    const uint64_t skip = below(whole.length);
    return {whole.unit, whole.offset + skip, 1 + below(whole.length - skip)};
  }

  std::mt19937_64 random_{GetParam()};
};

TEST_P(FragmentLedgerProperty, AcceptsEachDeclaredByteOnce) {
  const FragmentLedger::Specs specs(kLedgerUnits, {.name = "unit", .bytes = kLedgerBytes});
  const std::vector<UnitRange> declared = random_ranges();
  auto ledger = FragmentLedger::declare(declared, {0, 1, 2}, specs);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message;
  EXPECT_THAT(ledger->declared(), testing::UnorderedElementsAreArray(declared));
  ByteModel model(declared);
  // Random seals cover every declared byte sooner or later.
  while (!model.complete()) {
    EXPECT_FALSE(ledger->complete());
    const auto missing = ledger->first_missing();
    ASSERT_TRUE(missing && missing->length > 0);
    for (uint64_t i = 0; i < missing->length; ++i) {
      ASSERT_TRUE(model.is_missing(missing->unit, missing->offset + i));
    }
    const UnitRange range = random_seal(declared);
    ASSERT_EQ(ledger->seal(range, specs).ok(), model.seal(range))
        << "unit " << range.unit << ": " << range.length << " bytes at " << range.offset;
  }
  EXPECT_TRUE(ledger->complete());
  EXPECT_EQ(ledger->first_missing(), std::nullopt);
  EXPECT_FALSE(ledger->seal(declared.front(), specs).ok());
}

INSTANTIATE_TEST_SUITE_P(Seeds, FragmentLedgerProperty, testing::Range(1u, 201u));

}  // namespace
}  // namespace ckptd
