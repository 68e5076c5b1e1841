// Rounds of gc: which dead records a round takes, and when. The cost is linear in the backlog.
#include "ckptd/gc/dead_records.h"

#include <gmock/gmock.h>

#include "ckptd/limits.h"
#include "tests/ckptd/catalog/counting_store.h"
#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DeadRecordsTest : public testing::Test {
 protected:
  DeadRecordsTest() {
    ckpt::UnitSpec unit;
    unit.name = "unit";
    unit.bytes = 100;
    units_ = {unit};
    apply(store_opened());
    apply(run_created());
    apply(units_registered(units_));
    for (const ckpt::LineageId lineage : {1, 2}) apply(lineage_opened(lineage, 0, 0));
  }
  uint64_t apply(const fb::RecordT& record) {
    const Status applied = catalog_.apply(++sequence_, record);
    EXPECT_TRUE(applied.ok()) << applied.error().message;
    return sequence_;
  }
  // Commits one extent in the segment with the number of the lineage, and deletes the commit.
  uint64_t make_dead(ViewPoint point) {
    apply(committed({.point = point, .units = {0}}, units_));
    dead_.rescan();
    return apply(deleted(point, "test"));
  }
  void see(uint64_t next_reader) {
    while (!dead_.see(catalog_, next_reader, limits::kGcRecordsPerTurnMax)) ++turns_;
  }
  std::vector<uint64_t> take(uint64_t oldest_reader) {
    auto round = dead_.take(catalog_, oldest_reader, limits::kGcTasksPerRoundMax);
    candidates_ = std::move(round.candidates);
    std::vector<uint64_t> taken;
    for (const GcTask& task : round.tasks) taken.push_back(task.dead.sequence);
    return taken;
  }
  void reclaim(const std::vector<uint64_t>& records) {
    fb::SpaceFreedT freed;
    freed.run = kTestRun;
    freed.records = records;
    apply(make_record(std::move(freed)));
    for (const uint64_t record : records) dead_.freed(record);
  }

  std::shared_ptr<size_t> reads_ = std::make_shared<size_t>(0);
  Catalog catalog_{std::make_unique<CountingStore>(reads_)};
  std::vector<ckpt::UnitSpec> units_;
  uint64_t sequence_ = 0;
  DeadRecords dead_;
  size_t turns_ = 0;
  std::set<ckpt::SegmentId> candidates_;
};

TEST_F(DeadRecordsTest, ReadsBacklogAtMostTwiceInAllRounds) {
  constexpr size_t kRecords = 3000;
  for (ckpt::Step step = 1; step <= kRecords; ++step) make_dead({.lineage = 1, .step = step});
  size_t reads = 0;
  size_t taken = 0;
  size_t rounds = 0;
  for (bool more = true; more; ++rounds) {
    *reads_ = 0;
    see(1);
    const auto records = take(1);
    reads += *reads_;
    EXPECT_LE(records.size(), limits::kGcTasksPerRoundMax);
    taken += records.size();
    more = dead_.more();
    reclaim(records);
  }
  EXPECT_EQ(taken, kRecords);
  EXPECT_EQ(rounds, (kRecords + limits::kGcTasksPerRoundMax - 1) / limits::kGcTasksPerRoundMax);
  EXPECT_EQ(turns_, 2u) << "no turn of the loop sees more than it should";
  EXPECT_LE(reads, 2 * kRecords + 4 * (turns_ + 1));
  EXPECT_THAT(catalog_.dead_space(kTestRun), IsEmpty());
}

TEST_F(DeadRecordsTest, DeadSpaceWaitsForItsReaders) {
  const uint64_t first = make_dead({.lineage = 1, .step = 1});
  see(/*next_reader=*/5);
  EXPECT_THAT(take(/*oldest_reader=*/4), IsEmpty());
  EXPECT_EQ(dead_.waiting(), 1u);
  EXPECT_TRUE(dead_.is_read(1));
  EXPECT_THAT(candidates_, IsEmpty());
  // A second dead record in the segment waits for readers that began since then, too.
  const uint64_t second = make_dead({.lineage = 1, .step = 2});
  const uint64_t elsewhere = make_dead({.lineage = 2, .step = 3});
  see(/*next_reader=*/8);
  EXPECT_THAT(take(/*oldest_reader=*/7), ElementsAre(first));
  EXPECT_THAT(candidates_, ElementsAre(1));
  EXPECT_TRUE(dead_.is_read(1)) << "its file stays";
  reclaim({first});
  EXPECT_THAT(take(/*oldest_reader=*/8), ElementsAre(second, elsewhere));
  EXPECT_THAT(candidates_, ElementsAre(1, 2));
  EXPECT_FALSE(dead_.is_read(1));
  EXPECT_EQ(dead_.waiting(), 0u);
}

TEST_F(DeadRecordsTest, UnreclaimedRecordIsTakenAgainAfterForget) {
  const uint64_t first = make_dead({.lineage = 1, .step = 1});
  const uint64_t second = make_dead({.lineage = 1, .step = 2});
  see(5);
  EXPECT_THAT(take(5), ElementsAre(first, second));
  reclaim({first});
  see(5);
  EXPECT_THAT(take(5), IsEmpty()) << "once";
  dead_.forget();
  see(9);
  EXPECT_THAT(take(5), ElementsAre(second)) << "nobody after 5 was told of it";
}

TEST_F(DeadRecordsTest, TakesSpaceOfRemovedRuns) {
  const uint64_t first = make_dead({.lineage = 1, .step = 1});
  see(1);
  apply(committed({.point = {.lineage = 1, .step = 2}, .units = {0}}, units_));
  fb::RunRemovedT removed;
  removed.run = kTestRun;
  removed.time_ns = 1;
  removed.reason = "test";
  const uint64_t second = apply(make_record(std::move(removed)));
  dead_.rescan();
  see(1);
  EXPECT_THAT(take(1), ElementsAre(first, second));
}

}  // namespace
}  // namespace ckptd
