// Growth in the catalog: views have a grown unit from the first commit that contains it.
#include <gmock/gmock.h>

#include "ckptd/catalog/salvage.h"
#include "tests/ckptd/catalog/kv_fixture.h"
#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

constexpr ViewPoint kGrowth{1, 20};
constexpr ckpt::UnitId kAdapter = 3;

class CatalogGrowthTest : public testing::Test {
 protected:
  CatalogGrowthTest() {
    for (const char* name : {"adapter", "router"}) {
      units_.emplace_back();
      units_.back().name = name;
      units_.back().bytes = 40;
    }
    const std::vector<ckpt::UnitSpec> base(units_.begin(), units_.begin() + kAdapter);
    for (const fb::RecordT& record :
         {store_opened(), run_created(), units_registered(base), lineage_opened(1, 0, 0)}) {
      add(record);
    }
    commit({1, 10}, {0, 1, 2});
  }
  void add(const fb::RecordT& record) {
    records_.push_back(record);
    const Status applied = catalog_.apply(records_.size(), record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  fb::RecordT record_of(ViewPoint point, const std::vector<ckpt::UnitId>& units,
                        const std::vector<ckpt::UnitId>& grown = {}) const {
    CommitSpec spec{.point = point, .units = units};
    spec.full = units.size() >= kAdapter;
    spec.place = 8 * point.lineage + point.step;
    spec.grown = grown;
    return committed(spec, units_);
  }
  void commit(ViewPoint point, const std::vector<ckpt::UnitId>& units,
              const std::vector<ckpt::UnitId>& grown = {}) {
    add(record_of(point, units, grown));
  }
  void grow() { commit(kGrowth, {0, 1, 2, kAdapter}, {kAdapter}); }
  bool has(ckpt::UnitId unit, ViewPoint point) const {
    return catalog_.belongs(kTestRun, unit, point);
  }
  std::string refusal(fb::CommittedT body) {
    const Status applied = catalog_.apply(records_.size() + 1, make_record(std::move(body)));
    if (applied.ok()) return "";
    EXPECT_EQ(applied.error().code, ckpt::ErrorCode::kCorrupt);
    return applied.error().message;
  }

  std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);
  MemoryRoom room_;
  Catalog catalog_{room_.open()};
  std::vector<fb::RecordT> records_;
};

TEST_F(CatalogGrowthTest, OlderViewsDoNotHaveTheUnit) {
  grow();
  EXPECT_EQ(catalog_.units(kTestRun).value()->size(), 4u);
  EXPECT_EQ(catalog_.base_units(kTestRun), kAdapter);
  EXPECT_FALSE(has(kAdapter, {1, 10}));
  EXPECT_FALSE(has(kAdapter, {1, 19}));
  EXPECT_TRUE(has(kAdapter, kGrowth));
  EXPECT_TRUE(catalog_.complete(kTestRun, {1, 10}));
  EXPECT_TRUE(catalog_.complete(kTestRun, kGrowth));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), kGrowth);
}

TEST_F(CatalogGrowthTest, PartialCommitAfterTheGrowthIsComplete) {
  grow();
  commit({1, 30}, {1});
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), (ViewPoint{1, 30}));
}

TEST_F(CatalogGrowthTest, MissingBaseUnitMakesFirstCommitIncomplete) {
  const fb::RecordT first = lineage_opened(2, 0, 0);
  add(first);
  commit({2, 10}, {0, 1});
  EXPECT_FALSE(catalog_.complete(kTestRun, {2, 10}));
}

TEST_F(CatalogGrowthTest, ForksShareTheRunsList) {
  grow();
  add(lineage_opened(2, 1, 10));
  commit({2, 20}, {0, 1, 2, 4}, {4});
  EXPECT_FALSE(has(kAdapter, {2, 20}));
  EXPECT_TRUE(has(4, {2, 20}));
  EXPECT_FALSE(has(4, kGrowth));
  EXPECT_TRUE(catalog_.complete(kTestRun, {2, 20}));
  add(lineage_opened(3, 1, 20));
  commit({3, 30}, {0});
  EXPECT_TRUE(has(kAdapter, {3, 30}));
  EXPECT_TRUE(catalog_.complete(kTestRun, {3, 30}));
}

TEST_F(CatalogGrowthTest, DamagedGrowthMakesOlderViewTheLatest) {
  grow();
  commit({1, 30}, {0, 1});
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), (ViewPoint{1, 30}));
  add(commit_damaged(kGrowth, "its header"));
  EXPECT_TRUE(has(kAdapter, {1, 30}));
  EXPECT_FALSE(catalog_.complete(kTestRun, {1, 30}));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), (ViewPoint{1, 10}));
  add(commit_damaged(kGrowth, ""));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), (ViewPoint{1, 30}));
}

// Regression: steps of a lineage may be below its fork, and such views do not see the growth.
TEST_F(CatalogGrowthTest, DamagedGrowthOfAncestorLeavesEarlierViews) {
  grow();
  add(lineage_opened(2, 1, 20));
  commit({2, 15}, {0, 1, 2});
  commit({2, 30}, {0});
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 2), (ViewPoint{2, 30}));
  add(commit_damaged(kGrowth, "its header"));
  EXPECT_FALSE(catalog_.complete(kTestRun, {2, 30}));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 2), (ViewPoint{2, 15}));
}

TEST_F(CatalogGrowthTest, LaterCommitMayRepeatTheGrowth) {
  grow();
  commit({1, 30}, {0, 1, 2, 3, 4}, {3, 4});
  EXPECT_EQ(catalog_.units(kTestRun).value()->size(), 5u);
  EXPECT_EQ(catalog_.commit(kTestRun, 1, 30)->grown, 2u);
  EXPECT_EQ(catalog_.record(kTestRun, 1, 30)->grown.at(1)->name, "router");
}

TEST_F(CatalogGrowthTest, SurvivesReloadAndRebuild) {
  grow();
  const Catalog reopened(room_.open());
  EXPECT_EQ(reopened.base_units(kTestRun), kAdapter);
  EXPECT_EQ(*reopened.units(kTestRun).value(), *catalog_.units(kTestRun).value());
  ASSERT_TRUE(catalog_.clear().ok());
  apply_all(catalog_, records_);
  EXPECT_EQ(catalog_.base_units(kTestRun), kAdapter);
  EXPECT_FALSE(has(kAdapter, {1, 10}));
}

TEST_F(CatalogGrowthTest, SurvivesSalvageWithoutTheCommit) {
  grow();
  commit({1, 30}, {0, 1, 2, 3});
  add(deleted(kGrowth, "old"));
  const auto salvage = take_salvage(catalog_, 4);
  ASSERT_TRUE(salvage.ok()) << salvage.error().message;
  Catalog behind(make_memory_store());
  std::vector<fb::RecordT> records(records_.begin(), records_.begin() + 4);
  apply_all(behind, records);
  for (fb::RecordT& record : missing_before_commits(*salvage, behind, 1)) {
    records.push_back(std::move(record));
  }
  for (const Salvage::Commit& commit : salvage->commits) {
    records.push_back(make_record(commit.record));
  }
  Catalog salvaged(make_memory_store());
  apply_all(salvaged, records);
  EXPECT_EQ(salvaged.base_units(kTestRun), kAdapter);
  EXPECT_EQ(*salvaged.units(kTestRun).value(), *catalog_.units(kTestRun).value());
  EXPECT_FALSE(salvaged.belongs(kTestRun, kAdapter, {1, 10}));
  EXPECT_TRUE(salvaged.complete(kTestRun, {1, 10}));
}

TEST_F(CatalogGrowthTest, ForgedGrowthsAreRefused) {
  grow();
  const auto forged = [&](const std::function<void(fb::CommittedT&)>& change) {
    fb::RecordT record = record_of({1, 30}, {0, 1, 2, 3, 4}, {3, 4});
    fb::CommittedT body = *record.body.AsCommitted();
    change(body);
    return refusal(std::move(body));
  };
  EXPECT_THAT(forged([](auto& c) { c.grown[1]->id = 9; }), HasSubstr("registered again"));
  EXPECT_THAT(forged([](auto& c) { c.grown[0]->bytes = 41; }), HasSubstr("something else"));
  EXPECT_THAT(forged([](auto& c) { c.grown[0]->name = "other"; }), HasSubstr("something else"));
  EXPECT_THAT(forged([](auto& c) { c.grown[1]->name = "a/b"; }), HasSubstr("a unit name is"));
  EXPECT_THAT(forged([](auto& c) { c.grown.pop_back(); }), HasSubstr("unknown unit number 4"));
  EXPECT_THAT(forged([](auto& c) {
                std::erase_if(c.fragments, [](const auto& f) { return f.unit() == 4; });
              }),
              HasSubstr("grows the run by unit router, which it does not contain"));
  EXPECT_EQ(catalog_.units(kTestRun).value()->size(), 4u);
  EXPECT_EQ(forged([](auto&) {}), "");
}

TEST_F(CatalogGrowthTest, BaseDoesNotContinueBehindGrownUnits) {
  grow();
  const Status applied = catalog_.apply(records_.size() + 1, units_registered({units_[4]}, 4));
  ASSERT_FALSE(applied.ok());
  EXPECT_THAT(applied.error().message, HasSubstr("registered after the run has grown"));
}

}  // namespace
}  // namespace ckptd
