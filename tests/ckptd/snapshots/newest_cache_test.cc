#include "ckptd/snapshots/newest_cache.h"

#include <gtest/gtest.h>

#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

class NewestCacheTest : public testing::Test {
 protected:
  NewestCacheTest() {
    apply_all(catalog_,
              {store_opened(), run_created(), units_registered(units_), lineage_opened(1, 0, 0)});
    commit_behind_the_cache(1);
  }
  static ckpt::SnapshotKey key(ckpt::Step step, ckpt::LineageId lineage = 1,
                               ckpt::Epoch epoch = 1) {
    return {.run = kTestRun, .lineage = lineage, .epoch = epoch, .step = step};
  }
  void commit_behind_the_cache(ckpt::Step step) {
    const auto record = committed({.point = {1, step}, .units = all_units(units_)}, units_);
    ASSERT_TRUE(catalog_.apply(catalog_.applied_sequence() + 1, record).ok());
  }
  // Step of unit 0 as a snapshot of this lineage sees it.
  ckpt::Step newest(ckpt::LineageId lineage = 1) {
    return cache_.of(key(100, lineage), units_.size()).at(0)->step;
  }
  static SnapshotFacts facts(ckpt::Step step, uint32_t crc) {
    SnapshotFacts facts;
    facts.step = step;
    facts.saved = {{0, crc}};
    return facts;
  }

  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);  // weights, optimizer, trainer
  Catalog catalog_{make_memory_store()};
  RunNewestCache cache_{catalog_};
};

TEST_F(NewestCacheTest, ReadsTheCatalogOnceUntilForgotten) {
  EXPECT_EQ(newest(), 1u);
  commit_behind_the_cache(2);
  EXPECT_EQ(newest(), 1u);
  cache_.forget(kTestRun);
  EXPECT_EQ(newest(), 2u);
}

TEST_F(NewestCacheTest, ReadsTheCatalogAgainInAnotherLineage) {
  EXPECT_EQ(newest(), 1u);
  ASSERT_TRUE(
      catalog_.apply(catalog_.applied_sequence() + 1, lineage_opened(2, 1, /*fork_step=*/2)).ok());
  commit_behind_the_cache(2);
  EXPECT_EQ(newest(/*lineage=*/2), 2u);
}

TEST_F(NewestCacheTest, AddsTheSumsOfACommit) {
  newest();
  cache_.add(key(5), facts(5, 0xaa), {});
  EXPECT_EQ(newest(), 5u);
  EXPECT_EQ(cache_.of(key(100), units_.size()).at(0)->crc32c, 0xaau);
  cache_.add(key(4), facts(4, 0xbb), {});
  EXPECT_EQ(newest(), 5u) << "an older commit that became durable later";
}

TEST_F(NewestCacheTest, IgnoresACommitOfAnotherLineage) {
  newest();
  cache_.add(key(5, /*lineage=*/3), facts(5, 0xaa), {});
  EXPECT_EQ(newest(), 1u);
}

TEST_F(NewestCacheTest, KnowsCutUnitsOfCommit) {
  newest();
  WrittenExtent extent;
  extent.fragments = {{.unit = 0, .offset = 0, .length = 10, .crc32c = 1},
                      {.unit = 0, .offset = 10, .length = units_[0].bytes - 10, .crc32c = 2},
                      {.unit = 1, .offset = 0, .length = units_[1].bytes, .crc32c = 3}};
  SnapshotFacts saved = facts(5, 0xaa);
  saved.saved.emplace_back(1, 3);
  cache_.add(key(5), saved, {extent});
  EXPECT_TRUE(cache_.cuts(kTestRun).may_have(extent.fragments[0]));
  EXPECT_TRUE(cache_.cuts(kTestRun).may_have(extent.fragments[1]));
  EXPECT_FALSE(cache_.cuts(kTestRun).knows(1)) << "in one piece";
}

TEST_F(NewestCacheTest, HasGrowthOfSnapshotWithoutVersion) {
  const NewestVersions& newest = cache_.of(key(100), units_.size() + 2);
  ASSERT_EQ(newest.size(), units_.size() + 2);
  EXPECT_TRUE(newest[0].has_value());
  EXPECT_FALSE(newest.back().has_value());
}

TEST_F(NewestCacheTest, TakesTheGrowthOfACommit) {
  newest();
  SnapshotFacts saved = facts(5, 0xaa);
  const auto grown = static_cast<ckpt::UnitId>(units_.size());
  saved.saved.emplace_back(grown, 0xbb);
  cache_.add(key(5), saved, {});
  EXPECT_EQ(cache_.of(key(100), units_.size() + 1).at(grown)->crc32c, 0xbbu);
}

TEST_F(NewestCacheTest, TheEndOfAnEpochForgetsTheRun) {
  newest();
  commit_behind_the_cache(2);
  cache_.epoch_ended(kTestRun, 1);
  EXPECT_EQ(newest(), 2u);
}

TEST_F(NewestCacheTest, SnapshotsOfAnEndedEpochLeaveNothingBehind) {
  cache_.epoch_ended(kTestRun, 3);
  newest();
  commit_behind_the_cache(2);
  cache_.forget_if_ended(key(5, 1, /*epoch=*/4));
  EXPECT_EQ(newest(), 1u) << "a snapshot of the next epoch";
  cache_.forget_if_ended(key(5, 1, /*epoch=*/3));
  EXPECT_EQ(newest(), 2u);
}

TEST_F(NewestCacheTest, AnOpenedEpochKeepsTheRun) {
  cache_.epoch_ended(kTestRun, 3);
  cache_.epoch_opened(kTestRun);
  newest();
  commit_behind_the_cache(2);
  cache_.forget_if_ended(key(5, 1, /*epoch=*/3));
  EXPECT_EQ(newest(), 1u);
}

}  // namespace
}  // namespace ckptd
