// Checks of a registration, one by one.
#include "ckptd/runs/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/limits.h"
#include "tests/formats/samples.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

ckpt::fb::RegisterUnitsT three_units() {
  ckpt::fb::MessageT message = ckpt::test::sample_register_units(3);
  return *message.body.AsRegisterUnits();
}

std::vector<ckpt::UnitSpec> known_units() { return read_units(three_units()).value(); }

std::string refusal(const std::vector<ckpt::UnitSpec>& given) {
  const Status same = check_same_units(known_units(), 3, given);
  return same.ok() ? "accepted" : same.error().message;
}

TEST(RegisteredUnits, AreReadInTheirOrder) {
  const auto units = known_units();
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[2].name, "layers.3.experts.2.weights");
}

TEST(RegisteredUnits, MustNotBeEmpty) { EXPECT_FALSE(read_units(ckpt::fb::RegisterUnitsT()).ok()); }

TEST(RegisteredUnits, HaveTheirNumbersInOrder) {
  ckpt::fb::RegisterUnitsT message = three_units();
  message.units[1]->id = 2;
  const auto units = read_units(message);
  ASSERT_FALSE(units.ok());
  EXPECT_THAT(units.error().message, HasSubstr("unit number 1"));
}

TEST(RegisteredUnits, HaveDifferentNames) {
  ckpt::fb::RegisterUnitsT message = three_units();
  message.units[2]->name = message.units[0]->name;
  const auto units = read_units(message);
  ASSERT_FALSE(units.ok());
  EXPECT_THAT(units.error().message, HasSubstr("registered twice"));
}

TEST(SameUnits, AreAccepted) { EXPECT_EQ(refusal(known_units()), "accepted"); }

TEST(SameUnits, DifferenceIsTheExactCause) {
  auto given = known_units();
  given[1].bytes += 1;
  const Status same = check_same_units(known_units(), 3, given);
  ASSERT_FALSE(same.ok());
  EXPECT_EQ(same.error().code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_EQ(same.error().detail, ckpt::ErrorDetail::kUnitsDiffer);
}

TEST(SameUnits, FirstDifferenceIsNamed) {
  auto given = known_units();
  given[1].bytes += 1;
  given[2].name = "other";
  EXPECT_THAT(refusal(given), HasSubstr("unit layers.3.experts.1.weights"));
}

TEST(SameUnits, GrownUnitsMayBeLeftOut) {
  auto given = known_units();
  given.pop_back();
  EXPECT_TRUE(check_same_units(known_units(), 2, given).ok());
  EXPECT_TRUE(check_same_units(known_units(), 1, given).ok());
  EXPECT_FALSE(check_same_units(known_units(), 3, given).ok());
  given[0].bytes += 1;
  EXPECT_FALSE(check_same_units(known_units(), 1, given).ok());
}

TEST(SameUnits, MissingAndNewUnitsAreNamed) {
  auto given = known_units();
  given.pop_back();
  EXPECT_THAT(refusal(given), HasSubstr("layers.3.experts.2.weights is missing"));
  given = known_units();
  given.push_back(given.front());
  given.back().name = "extra";
  EXPECT_THAT(refusal(given), HasSubstr("extra is new"));
}

TEST(RegisteredMetadata, IsEmptyOrJson) {
  EXPECT_TRUE(check_metadata("").ok());
  EXPECT_TRUE(check_metadata(R"({"layers": 4})").ok());
  EXPECT_FALSE(check_metadata("{layers").ok());
}

TEST(RegisteredMetadata, HasABound) {
  EXPECT_FALSE(check_metadata(std::string(limits::kMetadataBytesMax + 1, ' ')).ok());
}

}  // namespace
}  // namespace ckptd
