#include "ckptd/catalog/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/catalog/keys.h"
#include "ckptd/catalog/other_format.h"
#include "tests/ckptd/catalog/history.h"
#include "tests/ckptd/catalog/kv_fixture.h"
#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

class CatalogTest : public testing::Test {
 protected:
  void SetUp() override {
    must(store_opened());
    must(run_created());
    must(units_registered(units_));
    must(lineage_opened(1, 0, 0));
  }
  Status apply(const fb::RecordT& record) { return catalog_.apply(next_++, record); }
  void must(const fb::RecordT& record) {
    const Status applied = apply(record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  void commit(ViewPoint point, std::vector<ckpt::UnitId> units, bool full = false) {
    must(committed({.point = point, .units = std::move(units), .full = full}, units_));
  }
  void commit_full(ViewPoint point) { commit(point, all_units(units_), true); }
  void expect_refused(const fb::RecordT& record) {
    const uint64_t applied = catalog_.applied_sequence();
    const auto refused = catalog_.apply(next_, record);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(catalog_.applied_sequence(), applied);
  }

  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);  // weights, optimizer, trainer
  Catalog catalog_{make_memory_store()};
  uint64_t next_ = 1;
};

TEST_F(CatalogTest, AbandonedFutureIsInNoView) {
  for (const ckpt::Step step : {5, 10, 15, 20}) commit_full({1, step});
  must(lineage_opened(2, 1, 10));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), (ViewPoint{1, 10}));
  EXPECT_EQ(catalog_.newest_version(kTestRun, 0, {2, 100}, {})->snapshot.step, 10u);
  EXPECT_EQ(catalog_.resolve(kTestRun, 0, 10).value(), (ViewPoint{1, 10}));
  EXPECT_EQ(catalog_.resolve(kTestRun, 0, 20).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(catalog_.resolve(kTestRun, 1, 20).value(), (ViewPoint{1, 20}));
  commit_full({2, 15});
  EXPECT_EQ(catalog_.resolve(kTestRun, 0, 15).value(), (ViewPoint{2, 15}));
  EXPECT_EQ(catalog_.newest_version(kTestRun, 0, {2, 19}, {})->snapshot.lineage, 2u);
  // A second resume from step 5: neither future of step 10 shows.
  must(lineage_opened(3, 2, 5));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), (ViewPoint{1, 5}));
}

TEST_F(CatalogTest, TokenCountsFollowTheLineage) {
  const auto commit_tokens = [&](ViewPoint point, uint64_t tokens) {
    must(committed({.point = point, .units = {0}, .tokens = {{0, 0, tokens}}}, units_));
  };
  commit_tokens({1, 5}, 50);
  commit_tokens({1, 10}, 100);
  must(lineage_opened(2, 1, 5));
  commit({2, 7}, {0});  // brings none
  EXPECT_EQ(catalog_.expert_tokens(kTestRun, {1, 10}),
            (ckpt::ExpertTokenCounts{{.layer = 0, .expert = 0, .tokens = 100}}));
  EXPECT_TRUE(catalog_.expert_tokens(kTestRun, {2, 7}).empty());
  EXPECT_EQ(catalog_.newest_expert_tokens(kTestRun, {1, 20})->commit, (ViewPoint{1, 10}));
  // Step 10 of lineage 1 is an abandoned future of lineage 2.
  const auto newest = catalog_.newest_expert_tokens(kTestRun, {2, 20});
  EXPECT_EQ(newest->commit, (ViewPoint{1, 5}));
  EXPECT_EQ(newest->counts[0].tokens, 50u);
  EXPECT_FALSE(catalog_.newest_expert_tokens(kTestRun, {2, 4}).has_value());
  must(deleted({1, 5}, "retention"));
  EXPECT_FALSE(catalog_.newest_expert_tokens(kTestRun, {2, 20}).has_value());
}

TEST_F(CatalogTest, CommitKeepsLostTokensOfItsExperts) {
  must(committed({.point = {1, 5},
                  .units = {0},
                  .tokens = {{0, 1, 70}, {0, 0, 50}},
                  .lost = {{0, 1, 7}, {0, 0, 20}}},
                 units_));
  commit({1, 10}, {0});
  EXPECT_EQ(catalog_.expert_tokens(kTestRun, {1, 5}),
            (ckpt::ExpertTokenCounts{{0, 0, 50, 20}, {0, 1, 70, 7}}));
  EXPECT_EQ(catalog_.commit(kTestRun, 1, 5)->lost_tokens, 27u);
  EXPECT_EQ(catalog_.commit(kTestRun, 1, 10)->lost_tokens, 0u);
}

TEST_F(CatalogTest, RefusesMoreLostTokensThanTokens) {
  const auto error = catalog_.apply(
      next_,
      committed({.point = {1, 5}, .units = {0}, .tokens = {{0, 0, 50}}, .lost = {{0, 0, 51}}},
                units_));
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(error.error().message,
              HasSubstr("run tiny step 5: layer 0 expert 0: 51 tokens lost of 50"));
  EXPECT_FALSE(catalog_.commit(kTestRun, 1, 5).has_value());
}

TEST_F(CatalogTest, DamagedCommitIsListedButInNoView) {
  commit_full({1, 5});
  commit_full({1, 10});
  must(commit_damaged({1, 10}, "unit trainer: segment 1 offset 4096: checksum"));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 1), (ViewPoint{1, 5}));
  EXPECT_EQ(catalog_.newest_version(kTestRun, 0, {1, 10}, {})->snapshot.step, 5u);
  EXPECT_EQ(catalog_.resolve(kTestRun, 1, 10).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(catalog_.resolve_any(kTestRun, 1, 10).value(), (ViewPoint{1, 10}));
  const auto damaged = catalog_.damaged_version(kTestRun, 0, {1, 10});
  ASSERT_TRUE(damaged.has_value());
  EXPECT_EQ(damaged->snapshot.step, 10u);
  EXPECT_EQ(damaged->reason, "unit trainer: segment 1 offset 4096: checksum");
  EXPECT_FALSE(catalog_.damaged_version(kTestRun, 0, {1, 9}).has_value());
  EXPECT_EQ(catalog_.commits(kTestRun).size(), 2u);
  EXPECT_EQ(catalog_.versions(kTestRun, 0).size(), 1u);
  ASSERT_TRUE(catalog_.record(kTestRun, 1, 10).has_value());  // verify still looks at it
  EXPECT_EQ(catalog_.record(kTestRun, 1, 10)->fragments.size(), 2 * units_.size());
  // The trainer hands the same step in again: it takes the damaged one's place.
  commit_full({1, 10});
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 1), (ViewPoint{1, 10}));
  EXPECT_EQ(catalog_.commits(kTestRun).size(), 2u);
}

TEST_F(CatalogTest, ClearedDamageMarkLeavesNoTrace) {
  commit_full({1, 5});
  commit_full({1, 10});
  commit({1, 12}, {0});
  const std::string before = everything(catalog_);
  for (const ViewPoint point : {ViewPoint{1, 10}, ViewPoint{1, 12}}) {
    must(commit_damaged(point, "unit trainer: segments/000001.seg is missing"));
    EXPECT_NE(everything(catalog_), before);
    must(commit_damaged(point, ""));
    EXPECT_EQ(everything(catalog_), before);
  }
  must(deleted({1, 10}, "retention"));
  must(commit_damaged({1, 10}, ""));
  EXPECT_TRUE(catalog_.commit(kTestRun, 1, 10)->deleted);
}

TEST_F(CatalogTest, PartialCommitsMakeACompleteViewTogether) {
  commit({1, 1}, {0});
  commit({1, 2}, {2});
  EXPECT_FALSE(catalog_.complete(kTestRun, {1, 2}));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 1), std::nullopt);
  commit({1, 3}, {1});
  EXPECT_TRUE(catalog_.complete(kTestRun, {1, 3}));
  EXPECT_FALSE(catalog_.complete(kTestRun, {1, 2}));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 1), (ViewPoint{1, 3}));
}

TEST_F(CatalogTest, AUnitRegisteredLaterMakesOlderViewsIncomplete) {
  commit_full({1, 5});
  ckpt::UnitSpec late;
  late.name = "late";
  late.bytes = 9;
  must(units_registered({late}, 3));
  EXPECT_FALSE(catalog_.complete(kTestRun, {1, 5}));
  std::vector<ckpt::UnitSpec> more = units_;
  more.push_back(late);
  must(committed({.point = {1, 6}, .units = {3}}, more));
  EXPECT_TRUE(catalog_.complete(kTestRun, {1, 6}));
  EXPECT_EQ(catalog_.latest_complete(kTestRun, 0), (ViewPoint{1, 6}));
}

TEST_F(CatalogTest, ErrorsNameMissingRunStepAndLineage) {
  EXPECT_EQ(catalog_.run("other").error().message, "run other: no such run");
  EXPECT_EQ(catalog_.run("other").error().detail, ckpt::ErrorDetail::kNoSuchRun);
  EXPECT_EQ(catalog_.run("other").error().code, ErrorCode::kNotFound);
  const auto missing = catalog_.resolve(kTestRun, 0, 12);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message,
            "run tiny step 12: no commit at this step in lineage 1; `ckptctl log tiny` lists its "
            "commits");
  EXPECT_EQ(catalog_.resolve(kTestRun, 9, 12).error().message, "run tiny: no lineage 9");
}

TEST_F(CatalogTest, RefusesRecordsThatContradictTheOnesBefore) {
  expect_refused(run_created());
  expect_refused(lineage_opened(1, 0, 0));
  expect_refused(lineage_opened(3, 2, 0));
  expect_refused(committed({.point = {2, 5}, .units = {0}}, units_));
  expect_refused(make_record(fb::CommittedT()));
  fb::RecordT record = committed({.point = {1, 5}, .units = {0}}, units_);
  const auto change = [&](const fb::Fragment& fragment) {
    fb::RecordT changed = committed({.point = {1, 5}, .units = {0}}, units_);
    changed.body.AsCommitted()->fragments.back() = fragment;
    expect_refused(changed);
  };
  const fb::Fragment last = record.body.AsCommitted()->fragments.back();
  change({99, 0, last.offset(), last.length(), last.payload_offset(), 0, 0});
  change({0, 7, last.offset(), last.length(), last.payload_offset(), 0, 0});
  change({0, 0, last.offset() + 1, last.length() - 1, last.payload_offset(), 0, 0});
  change({0, 0, last.offset(), last.length() - 1, last.payload_offset(), 0, 0});
  change({0, 0, last.offset(), ~uint64_t{0}, 0, 0, 0});
  change({0, 0, last.offset(), last.length(), last.payload_offset() + 1, 0, 0});
  change({0, 0, last.offset(), 0, last.payload_offset(), 0, 0});
  must(record);
  ckpt::UnitSpec other = units_[0];
  other.bytes += 4;
  expect_refused(units_registered({other}));
}

TEST_F(CatalogTest, RefusesInvalidDeletionsAndRules) {
  commit({1, 5}, {0, 1});
  expect_refused(deleted({1, 5}, "x", {2}));     // a unit of the run, not of this commit
  expect_refused(deleted({1, 5}, "x", {99}));    // a unit of no run
  expect_refused(deleted({1, 5}, "x", {1, 0}));  // not ascending
  expect_refused(deleted({1, 5}, "x", {0, 0}));
  must(deleted({1, 5}, "x", {1}));
  expect_refused(deleted({1, 5}, "x", {0, 1}));  // a deleted unit cannot return
  must(deleted({1, 99}, "x"));                   // there never was one: nothing to do
  fb::RulesSetT rules;
  rules.run = kTestRun;
  rules.tags = {"not a name"};
  expect_refused(make_record(rules));
  rules.tags.clear();
  rules.run = 99;
  expect_refused(make_record(rules));
}

// A slab with a live unit in it keeps that unit's blocks and its header; the rest may go.
TEST_F(CatalogTest, DeadSpaceExcludesBlocksOfLiveUnits) {
  std::vector<ckpt::UnitSpec> units(3);
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].name = fmt::format("large.{}", i);
    units[i].bytes = 10'000;  // block 0 to 2, 2 to 4, 4 to 7 of the payload
  }
  Catalog catalog(make_memory_store());
  std::vector<fb::RecordT> records;
  records.push_back(store_opened());
  records.push_back(run_created());
  records.push_back(units_registered(units));
  records.push_back(lineage_opened(1, 0, 0));
  records.push_back(committed({.point = {1, 0}, .units = {0, 1, 2}, .full = true}, units));
  records.push_back(deleted({1, 0}, "x", {1}));
  apply_all(catalog, records);
  // Header at 8192, payload at 12288, 30,000 bytes of it.
  const std::vector<SpaceRange> first = {{1, 12288, 8192}, {1, 12288 + 5 * 4096, 3 * 4096}};
  EXPECT_EQ(catalog.dead_space(kTestRun), (std::vector<DeadSpace>{{6, first}}));
  EXPECT_EQ(catalog.live_extents(1).value(), 1u);
  ASSERT_TRUE(catalog.apply(7, deleted({1, 0}, "x")).ok());
  const std::vector<SpaceRange> second = {{1, 8192, 4096}, {1, 12288 + 8192, 3 * 4096}};
  EXPECT_EQ(catalog.dead_space(kTestRun), (std::vector<DeadSpace>{{6, first}, {7, second}}));
  EXPECT_EQ(catalog.live_extents(1).value(), 0u);
  fb::SpaceFreedT freed;
  freed.run = kTestRun;
  freed.records = {6};
  ASSERT_TRUE(catalog.apply(8, make_record(std::move(freed))).ok());
  EXPECT_EQ(catalog.dead_space(kTestRun), (std::vector<DeadSpace>{{7, second}}));
}

// Whichever commit is deleted first, the other keeps its shared extents.
TEST_F(CatalogTest, SharedExtentsAreDeadAfterTheLastReference) {
  std::vector<ckpt::UnitSpec> units(3);
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].name = fmt::format("large.{}", i);
    units[i].bytes = 10'000;  // as above
  }
  fb::RecordT writer = committed({.point = {1, 0}, .units = {0, 1, 2}, .full = true}, units);
  fb::CommittedT sharing = *writer.body.AsCommitted();
  sharing.step = 1;
  sharing.full = false;
  sharing.extents.front()->lineage = 1;
  sharing.extents.front()->epoch = sharing.epoch;
  std::erase_if(sharing.fragments, [](const auto& fragment) { return fragment.unit() != 1; });
  const std::vector<SpaceRange> of_both = {{1, 8192, 4096}, {1, 12288 + 8192, 3 * 4096}};
  const std::vector<SpaceRange> of_writer = {{1, 12288, 8192}, {1, 12288 + 5 * 4096, 3 * 4096}};
  const std::vector<SpaceRange> all = {{1, 8192, 4096 + 8 * 4096}};
  for (const bool writer_first : {true, false}) {
    SCOPED_TRACE(writer_first);
    Catalog catalog(make_memory_store());
    std::vector<fb::RecordT> records;
    records.push_back(store_opened());
    records.push_back(run_created());
    records.push_back(units_registered(units));
    records.push_back(lineage_opened(1, 0, 0));
    records.push_back(writer);
    records.push_back(make_record(sharing));
    apply_all(catalog, records);
    EXPECT_EQ(catalog.live_extents(1).value(), 2u);
    const auto again = catalog.record(kTestRun, 1, 1);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->extents.front()->lineage, 1u);
    EXPECT_EQ(again->extents.front()->epoch, sharing.epoch);
    EXPECT_EQ(again->fragments.size(), sharing.fragments.size());
    const auto version = catalog.newest_version(kTestRun, 1, {1, 1}, std::nullopt);
    ASSERT_TRUE(version.has_value());
    EXPECT_EQ(version->fragments.front().written_by, (ViewPoint{1, 0}));

    ASSERT_TRUE(catalog.apply(7, deleted({1, writer_first ? 0u : 1u}, "x")).ok());
    EXPECT_EQ(catalog.live_extents(1).value(), 1u);
    ASSERT_TRUE(catalog.apply(8, deleted({1, writer_first ? 1u : 0u}, "x")).ok());
    EXPECT_EQ(catalog.live_extents(1).value(), 0u);
    const std::vector<DeadSpace> dead = writer_first
                                            ? std::vector<DeadSpace>{{7, of_writer}, {8, of_both}}
                                            : std::vector<DeadSpace>{{8, all}};
    EXPECT_EQ(catalog.dead_space(kTestRun), dead);
  }
}

TEST_F(CatalogTest, RefusesJournalOfAnotherStore) {
  const auto refused = catalog_.apply(1, store_opened(99));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
}

TEST(CatalogHealthTest, CorruptCatalogIsClearedAndRebuilt) {
  const std::vector<fb::RecordT> records = [] {
    const auto units = test_units(1, 1);
    std::vector<fb::RecordT> made;
    made.push_back(store_opened());
    made.push_back(run_created());
    made.push_back(units_registered(units));
    made.push_back(lineage_opened(1, 0, 0));
    made.push_back(committed({.point = {1, 5}, .units = all_units(units), .full = true}, units));
    return made;
  }();
  const std::vector<std::pair<Family, std::string>> small_tables = {
      {Family::kRuns, keys::run(kTestRun)},
      {Family::kRuns, keys::run_state(kTestRun)},
      {Family::kUnits, keys::units(kTestRun, 0)},
      {Family::kLineages, keys::lineage(kTestRun, 1)},
      {Family::kMeta, std::string(keys::kFormat)}};
  for (const auto& [family, key] : small_tables) {
    MemoryRoom room;
    {
      Catalog catalog(room.open());
      apply_all(catalog, records);
    }
    ASSERT_TRUE(room.open()->write({{family, key, "spoilt"}}).ok());
    Catalog catalog(room.open());
    EXPECT_NE(catalog.reset_reason(), "") << family_name(family);
    EXPECT_EQ(catalog.applied_sequence(), 0u);
    apply_all(catalog, records);
    EXPECT_TRUE(catalog.complete(kTestRun, {1, 5}));
  }
  // A version is only met when it is asked for: the answer is "none", and health() says why.
  MemoryRoom room;
  Catalog catalog(room.open());
  apply_all(catalog, records);
  ASSERT_TRUE(
      room.open()->write({{Family::kVersions, keys::version(kTestRun, 0, 1, 5), "x"}}).ok());
  EXPECT_TRUE(catalog.health().ok());
  EXPECT_FALSE(catalog.newest_version(kTestRun, 0, {1, 5}, {}).has_value());
  ASSERT_FALSE(catalog.health().ok());
  EXPECT_EQ(catalog.health().error().code, ErrorCode::kCorrupt);
  // The catalog is emptied only if the journal can fill it again.
  const auto before = catalog.applied_sequence();
  const Status refused = catalog.heal(
      []() -> Status { return ckpt::make_error(ErrorCode::kCorrupt, "the journal is damaged"); });
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("the journal is damaged"));
  EXPECT_EQ(catalog.applied_sequence(), before);
  EXPECT_TRUE(catalog.newest_version(kTestRun, 1, {1, 5}, {}).has_value());
  ASSERT_TRUE(catalog.heal([] { return Status(); }).ok());
  EXPECT_EQ(catalog.applied_sequence(), 0u);
  apply_all(catalog, records);
  EXPECT_TRUE(catalog.health().ok());
  EXPECT_TRUE(catalog.newest_version(kTestRun, 0, {1, 5}, {}).has_value());
}

TEST(CatalogHealthTest, KeepsCatalogOfOtherFormatAheadOfJournal) {
  MemoryRoom room;
  uint64_t applied = 0;
  std::string id;
  {
    Catalog catalog(room.open());
    for (const fb::RecordT& record : {store_opened(), run_created()}) {
      ASSERT_TRUE(catalog.apply(++applied, record).ok());
    }
    id = catalog.store_id();
  }
  const auto check = [&](uint64_t journal_sequence, std::string_view store) {
    return check_other_format(*room.open(), store, journal_sequence);
  };
  EXPECT_TRUE(check(applied - 1, id).ok()) << "this program can salvage it";
  const auto put = [&](std::string_view key, std::string value) {
    return room.open()->write({{Family::kMeta, std::string(key), std::move(value)}});
  };
  ASSERT_TRUE(put(keys::kFormat, keys::number(uint32_t{1})).ok());
  EXPECT_TRUE(check(applied, id).ok()) << "the journal has everything";
  EXPECT_TRUE(check(applied - 1, "another store").ok()) << "of that one nothing can be put back";
  const auto ahead = check(applied - 1, id);
  ASSERT_FALSE(ahead.ok());
  EXPECT_EQ(ahead.error().code, ErrorCode::kVersionMismatch);
  EXPECT_NE(ahead.error().message.find("records 2 to 2 were durable"), std::string::npos)
      << ahead.error().message;
}

}  // namespace
}  // namespace ckptd
