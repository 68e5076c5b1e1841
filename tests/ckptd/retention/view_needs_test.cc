// Versions that many views need, resolved at once: the same as for each view alone, at a bounded
// number of reads.
#include "ckptd/retention/view_needs.h"

#include <gtest/gtest.h>

#include "ckptd/retention/prune.h"
#include "tests/ckptd/catalog/counting_store.h"
#include "tests/ckptd/catalog/history.h"

namespace ckptd {
namespace {

struct Expected {
  std::map<ViewPoint, std::set<ckpt::UnitId>> units;
  std::set<ViewPoint> tokens;
};

// Reference: needs by the naive model, view by view and unit by unit.
Expected needs_of(const std::vector<ViewPoint>& views, const HistoryModel& model,
                  const Catalog& catalog) {
  Expected expected;
  for (const ViewPoint& view : views) {
    for (ckpt::UnitId unit = 0; unit < model.units.size(); ++unit) {
      if (const auto newest = model.newest(unit, view)) expected.units[*newest].insert(unit);
    }
    if (const auto tokens = catalog.newest_expert_tokens(kTestRun, view)) {
      expected.tokens.insert(tokens->commit);
    }
  }
  return expected;
}

TEST(ViewNeeds, EqualTheUnitsOfEachView) {
  size_t needed = 0;
  size_t of_ancestors = 0;
  const auto first = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed()) * 1000;
  for (uint64_t seed = first; seed < first + 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const RecordedHistory history = HistoryMaker(seed).make(20 + random() % 80);
    Catalog catalog(make_memory_store());
    apply_all(catalog, history.records);
    std::vector<ViewPoint> views;
    for (uint64_t i = random() % 12; i > 0; --i) {
      const auto lineage =
          static_cast<ckpt::LineageId>(1 + random() % history.model.lineages.size());
      views.push_back({lineage, random() % 5 == 0 ? ~ckpt::Step{0} : random() % 42});
    }
    ViewNeeds needs(catalog, kTestRun);
    for (const ViewPoint& view : views) needs.add_view(view);
    needs.resolve();
    ASSERT_TRUE(catalog.health().ok());
    const Expected expected = needs_of(views, history.model, catalog);
    for (const CommitInfo& commit : catalog.commits(kTestRun)) {
      const ViewPoint point{commit.snapshot.lineage, commit.snapshot.step};
      const auto found = expected.units.find(point);
      const auto units = needs.of(commit);
      EXPECT_TRUE(std::ranges::is_sorted(units));
      EXPECT_EQ(std::set(units.begin(), units.end()),
                found == expected.units.end() ? std::set<ckpt::UnitId>() : found->second);
      EXPECT_EQ(needs.tokens_of(point), expected.tokens.contains(point));
      needed += units.size();
      const bool own = std::ranges::any_of(
          views, [&](const ViewPoint& view) { return view.lineage == point.lineage; });
      if (!own) of_ancestors += units.size();
    }
  }
  EXPECT_GT(needed, 3'000u);
  EXPECT_GT(of_ancestors, 100u) << "views that see no ancestors would prove little";
}

TEST(ViewNeeds, UnknownLineageOrRunNeedsNothing) {
  Catalog catalog(make_memory_store());
  const auto units = test_units(1, 1);
  apply_all(catalog,
            {store_opened(), run_created(), units_registered(units), lineage_opened(1, 0, 0),
             committed({.point = {1, 5}, .units = all_units(units)}, units)});
  ViewNeeds needs(catalog, kTestRun);
  needs.add_view({9, 100});
  needs.add_view({0, 100});
  needs.add_version({1, 5}, 1);
  needs.add_version({1, 5}, 1);
  needs.resolve();
  EXPECT_EQ(needs.of(*catalog.commit(kTestRun, 1, 5)), std::vector<ckpt::UnitId>{1});
  ViewNeeds of_no_run(catalog, kTestRun + 1);
  of_no_run.add_view({1, 100});
  of_no_run.resolve();
  EXPECT_TRUE(of_no_run.of(*catalog.commit(kTestRun, 1, 5)).empty());
}

// One full commit, then small commits: the reads to plan a prune do not grow with the product of
// kept views and units.
class LongHistory : public testing::Test {
 protected:
  static constexpr ckpt::Step kCommits = 600;

  LongHistory() : catalog_(std::make_unique<CountingStore>(reads_)) {
    const auto units = test_units(5, 10);
    std::vector<fb::RecordT> records = {store_opened(), run_created(), units_registered(units),
                                        lineage_opened(1, 0, 0)};
    records.push_back(committed({.point = {1, 1}, .units = all_units(units), .full = true}, units));
    for (ckpt::Step step = 2; step <= kCommits; ++step) {
      const auto unit = static_cast<ckpt::UnitId>(step % 4);
      records.push_back(committed({.point = {1, step}, .units = {unit, unit + 4}}, units));
    }
    apply_all(catalog_, records);
    units_ = units.size();
  }

  std::shared_ptr<size_t> reads_ = std::make_shared<size_t>(0);
  Catalog catalog_;
  size_t units_ = 0;
};

TEST_F(LongHistory, PrunePlanReadsAreLinearInCommits) {
  ASSERT_GT(units_, 100u);
  for (const uint32_t kept : {uint32_t{10}, uint32_t{kCommits / 2}, uint32_t{kCommits - 1}}) {
    *reads_ = 0;
    ckpt::KeepRules rules;
    rules.last = kept;
    const auto plan = plan_prune(catalog_, {.run = kTestRun, .rules = rules, .now_ns = UINT64_MAX});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->kept.size(), kept);
    EXPECT_EQ(plan->removed.size(), kCommits - kept);
    EXPECT_LT(*reads_, 5 * kCommits) << kept;
  }
}

TEST_F(LongHistory, ViewReadsAreBoundedPerUnit) {
  for (const ckpt::Step step : {ckpt::Step{100}, kCommits}) {
    *reads_ = 0;
    const auto sums = catalog_.newest_sums(kTestRun, {1, step});
    EXPECT_TRUE(std::ranges::all_of(sums, [](const auto& sum) { return sum.has_value(); }));
    EXPECT_LT(*reads_, 2 * units_);
  }
}

}  // namespace
}  // namespace ckptd
