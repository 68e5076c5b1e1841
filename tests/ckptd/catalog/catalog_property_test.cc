// Catalog against the naive model, over random histories.
#include <gtest/gtest.h>

#include "tests/ckptd/catalog/history.h"
#include "tests/ckptd/catalog/kv_fixture.h"

namespace ckptd {

std::string everything(const Catalog& catalog, ckpt::RunId run) {
  std::string text;
  const auto line = [&](std::string_view format, const auto&... args) {
    text += fmt::format(fmt::runtime(format), args...) + "\n";
  };
  EXPECT_TRUE(catalog.health().ok()) << catalog.health().error().message;
  for (const RunInfo& info : catalog.runs()) {
    line("run {} {} lineage {} epoch {} commits {} bytes {} {}", info.id, info.name,
         info.current_lineage, info.last_epoch, info.commits, info.bytes, info.metadata);
  }
  const auto specs = catalog.units(run).value();
  const auto lineages = catalog.lineages(run).value();
  for (const Lineage& lineage : lineages) {
    line("lineage {} from {}@{}", lineage.id, lineage.parent, lineage.fork_step);
    const auto latest = catalog.latest_complete(run, lineage.id);
    if (latest) line("  latest {}@{}", latest->lineage, latest->step);
  }
  for (const auto& [tag, point] : catalog.tags(run)) {
    line("tag {} {}@{}", tag, point.lineage, point.step);
  }
  for (const CommitInfo& commit : catalog.commits(run)) {
    line("commit #{} {}@{} epoch {} attempt {} bytes {} full {} damaged {} deleted {} {} loss {}",
         commit.sequence, commit.snapshot.lineage, commit.snapshot.step, commit.snapshot.epoch,
         commit.snapshot.attempt, commit.bytes, commit.full, commit.damaged, commit.deleted,
         commit.reason, commit.metrics.at("loss"));
    line("  lost tokens {}", commit.lost_tokens);
    for (const auto& [layer, expert, tokens, lost] :
         catalog.expert_tokens(run, {commit.snapshot.lineage, commit.snapshot.step})) {
      line("  layer {} expert {} tokens {} lost {}", layer, expert, tokens, lost);
    }
    line("  alarms {}", describe(commit.alarms, commit.snapshot.step, *specs));
  }
  for (const Refusal& refusal : catalog.refusals(run)) {
    line("refused #{} {}@{} {} {}", refusal.sequence, refusal.snapshot.lineage,
         refusal.snapshot.step, refusal.time_ns,
         describe(refusal.alarms, refusal.snapshot.step, *specs));
  }
  for (ckpt::UnitId unit = 0; unit < specs->size(); ++unit) {
    line("unit {} {}", (*specs)[unit].name, (*specs)[unit].bytes);
    for (const UnitVersion& version : catalog.versions(run, unit)) {
      line("  {}@{} attempt {} crc {:08x} fragments {} at {}", version.snapshot.lineage,
           version.snapshot.step, version.snapshot.attempt, version.crc32c,
           version.fragments.size(), version.fragments.front().payload_offset);
    }
  }
  return text;
}

namespace {

uint64_t base_seed() {
  return static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
}

std::optional<ViewPoint> point_of(const std::optional<UnitVersion>& version) {
  if (!version) return std::nullopt;
  return ViewPoint{version->snapshot.lineage, version->snapshot.step};
}

// Bytes of the unit at the commit that wrote them (with dedup an earlier commit).
std::vector<std::byte> bytes_of(const UnitVersion& version, const ckpt::UnitSpec& spec) {
  const FragmentPlace& place = version.fragments.front();
  if (place.shared()) return unit_bytes(spec, place.written_by);
  return unit_bytes(spec, {version.snapshot.lineage, version.snapshot.step});
}

void expect_version_holds(const UnitVersion& version, const ckpt::UnitSpec& spec) {
  const auto bytes = bytes_of(version, spec);
  EXPECT_EQ(version.bytes, spec.bytes);
  EXPECT_EQ(version.crc32c, ckpt::base::crc32c(bytes));
  uint64_t covered = 0;
  for (const FragmentPlace& place : version.fragments) {
    ASSERT_EQ(place.offset, covered);
    EXPECT_EQ(place.crc32c,
              ckpt::base::crc32c(ckpt::ByteView(bytes).subspan(place.offset, place.length)));
    covered += place.length;
  }
  EXPECT_EQ(covered, spec.bytes);
}

void expect_views_match(const Catalog& catalog, const HistoryModel& model) {
  for (const auto& [id, lineage] : model.lineages) {
    EXPECT_EQ(catalog.latest_complete(kTestRun, id), model.latest_complete(id)) << "lineage " << id;
    for (ckpt::Step step = 0; step <= 40; ++step) {
      const ViewPoint point{id, step};
      ASSERT_EQ(catalog.complete(kTestRun, point), model.complete(point)) << id << "@" << step;
      const auto sums = catalog.newest_sums(kTestRun, point);
      ASSERT_EQ(sums.size(), model.units.size());
      for (ckpt::UnitId unit = 0; unit < model.units.size(); ++unit) {
        auto version = catalog.newest_version(kTestRun, unit, point, std::nullopt);
        ASSERT_EQ(point_of(version), model.newest(unit, point)) << id << "@" << step;
        ASSERT_EQ(sums[unit].has_value(), version.has_value()) << id << "@" << step;
        ASSERT_EQ(catalog.belongs(kTestRun, unit, point), model.belongs(unit, point))
            << "unit " << unit << " at " << id << "@" << step;
        if (!version) continue;
        EXPECT_EQ((ViewPoint{sums[unit]->lineage, sums[unit]->step}), point_of(version));
        EXPECT_EQ(sums[unit]->crc32c, version->crc32c);
        expect_version_holds(*version, model.units[unit]);
        // The older versions below it, down to the first.
        const auto older = catalog.newest_version(kTestRun, unit, point, version->snapshot);
        ASSERT_EQ(point_of(older), model.newest(unit, point, point_of(version)));
      }
    }
  }
}

void expect_history_matches(const Catalog& catalog, const HistoryModel& model) {
  EXPECT_EQ(catalog.tags(kTestRun), model.tags);
  const auto commits = catalog.commits(kTestRun);
  ASSERT_EQ(commits.size(), model.commits.size());
  uint64_t live = 0;
  uint64_t live_bytes = 0;
  for (size_t i = 0; i < commits.size(); ++i) {
    const HistoryModel::Commit& expected = model.commits[i];
    EXPECT_EQ((ViewPoint{commits[i].snapshot.lineage, commits[i].snapshot.step}), expected.point);
    EXPECT_EQ(commits[i].damaged, expected.damaged);
    EXPECT_EQ(commits[i].deleted, expected.deleted);
    EXPECT_EQ(std::set(commits[i].units.begin(), commits[i].units.end()), expected.units);
    const auto resolved = catalog.resolve(kTestRun, expected.point.lineage, expected.point.step);
    EXPECT_EQ(resolved.ok(), !expected.damaged && !expected.deleted);
    EXPECT_TRUE(!resolved.ok() || *resolved == expected.point);
    if (expected.deleted) continue;
    live += 1;
    live_bytes += commits[i].bytes;
  }
  EXPECT_EQ(catalog.run(kTestRun)->commits, live);
  EXPECT_EQ(catalog.run(kTestRun)->bytes, live_bytes);
}

template <typename Room>
class CatalogPropertyTest : public testing::Test {
 protected:
  Room room_;
};
using Rooms = testing::Types<MemoryRoom, RocksDbRoom>;
TYPED_TEST_SUITE(CatalogPropertyTest, Rooms);

TYPED_TEST(CatalogPropertyTest, ViewsEqualTheNaiveModel) {
  const int histories = std::is_same_v<TypeParam, MemoryRoom> ? 25 : 2;
  for (int i = 0; i < histories; ++i) {
    const uint64_t seed = base_seed() * 1000 + i;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RecordedHistory history = HistoryMaker(seed).make(60);
    TypeParam room;
    Catalog catalog(room.open());
    apply_all(catalog, history.records);
    expect_views_match(catalog, history.model);
    expect_history_matches(catalog, history.model);
    ASSERT_TRUE(catalog.health().ok());
  }
}

TYPED_TEST(CatalogPropertyTest, ReopenedAndRebuiltCatalogAnswersTheSame) {
  const RecordedHistory history = HistoryMaker(base_seed()).make(120);
  std::string answers;
  {
    Catalog catalog(this->room_.open());
    apply_all(catalog, history.records);
    answers = everything(catalog);
  }
  Catalog catalog(this->room_.open());
  EXPECT_EQ(catalog.reset_reason(), "");
  EXPECT_EQ(catalog.applied_sequence(), history.records.size());
  EXPECT_EQ(everything(catalog), answers);
  apply_all(catalog, history.records);  // a replay changes nothing
  EXPECT_EQ(everything(catalog), answers);
  ASSERT_TRUE(catalog.clear().ok());
  EXPECT_EQ(catalog.applied_sequence(), 0u);
  EXPECT_TRUE(catalog.runs().empty());
  apply_all(catalog, history.records);
  EXPECT_EQ(everything(catalog), answers);
}

TEST(CatalogCrashTest, EveryPrefixOfBatchesPlusReplayEqualsWhole) {
  const uint64_t seed = base_seed() + 5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const RecordedHistory history = HistoryMaker(seed).make(60);
  std::string answers;
  {
    Catalog catalog(make_memory_store());
    apply_all(catalog, history.records);
    answers = everything(catalog);
  }
  for (size_t kept = 0; kept <= history.records.size(); ++kept) {
    MemoryRoom room;
    {
      Catalog catalog(room.open());
      apply_all(catalog, history.records);
    }
    ASSERT_EQ(room.image().batches(), history.records.size());
    room.image().keep_prefix(kept);
    Catalog catalog(room.open());
    EXPECT_EQ(catalog.reset_reason(), "");
    ASSERT_EQ(catalog.applied_sequence(), kept);
    apply_all(catalog, history.records);
    ASSERT_EQ(everything(catalog), answers) << "kept " << kept;
  }
}

// A catalog record encodes to the bytes of its journal record, so that verify can trust it.
TEST(CatalogPropertyTest, RecordsEncodeToTheBytesOfTheJournal) {
  const RecordedHistory history = HistoryMaker(base_seed() + 9).make(80);
  Catalog catalog(make_memory_store());
  apply_all(catalog, history.records);
  size_t compared = 0;
  for (size_t i = 0; i < history.records.size(); ++i) {
    const auto* journal = history.records[i].body.AsCommitted();
    if (journal == nullptr) continue;
    const auto entry = catalog.commit(kTestRun, journal->lineage, journal->step);
    ASSERT_TRUE(entry.has_value());
    if (entry->sequence != i + 1) continue;  // a later record replaced this one
    const auto record = catalog.record(kTestRun, journal->lineage, journal->step);
    ASSERT_EQ(record.has_value(), !entry->deleted || !entry->units.empty());
    if (!record || entry->deleted) continue;
    EXPECT_EQ(ckpt::encode_record(make_record(*record)), ckpt::encode_record(history.records[i]));
    ++compared;
  }
  EXPECT_GT(compared, 10u);
}

}  // namespace
}  // namespace ckptd
