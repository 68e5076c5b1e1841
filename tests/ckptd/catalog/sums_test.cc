// Checksums of the newest version of each unit when the newest commits do not have the unit.
#include <gtest/gtest.h>

#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

class SumsTest : public testing::Test {
 protected:
  SumsTest() { apply_all(catalog_, records_); }
  void must(const fb::RecordT& record) {
    const Status applied = catalog_.apply(catalog_.applied_sequence() + 1, record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  void commit(ViewPoint point, std::vector<ckpt::UnitId> units) {
    must(committed({.point = point, .units = std::move(units)}, units_));
  }
  void expect_newest(ckpt::UnitId unit, ViewPoint at, ViewPoint view) {
    const auto sums = catalog_.newest_sums(kTestRun, view);
    ASSERT_EQ(sums.size(), units_.size());
    const auto version = catalog_.newest_version(kTestRun, unit, view, {});
    ASSERT_TRUE(sums[unit].has_value() && version.has_value()) << unit;
    EXPECT_EQ((ViewPoint{sums[unit]->lineage, sums[unit]->step}), at) << unit;
    EXPECT_EQ(sums[unit]->crc32c, version->crc32c) << unit;
  }

  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);  // weights, optimizer, trainer
  const std::vector<fb::RecordT> records_ = {store_opened(), run_created(),
                                             units_registered(units_), lineage_opened(1, 0, 0)};
  Catalog catalog_{make_memory_store()};
};

// More commits than newest_sums() scans: units that they lack are looked up one by one.
TEST_F(SumsTest, FindsSumsOfRarelySavedUnits) {
  commit({1, 1}, {1});
  for (ckpt::Step step = 2; step < 300; ++step) commit({1, step}, {0});
  expect_newest(0, {1, 299}, {1, 400});
  expect_newest(1, {1, 1}, {1, 400});
  EXPECT_FALSE(catalog_.newest_sums(kTestRun, {1, 400})[2].has_value());
}

// Versions are found in every lineage of the view, and below damaged commits.
TEST_F(SumsTest, FindsSumsInAncestorLineages) {
  commit({1, 1}, {1, 2});
  commit({1, 2}, {2});
  for (ckpt::Step step = 3; step < 60; ++step) commit({1, step}, {0});
  must(commit_damaged({1, 2}, "its header"));
  must(lineage_opened(2, 1, 50));
  for (ckpt::Step step = 51; step < 100; ++step) commit({2, step}, {0});
  expect_newest(0, {2, 99}, {2, 99});
  for (const ckpt::UnitId unit : {1, 2}) expect_newest(unit, {1, 1}, {2, 99});
}

}  // namespace
}  // namespace ckptd
