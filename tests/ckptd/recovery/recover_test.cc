// recover(): the value that a start gets. Whole starts: tests/ckptd/daemon/recovery_test.cc.
#include <gmock/gmock.h>

#include "ckptd/io/memory_disk.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/recovery/recovery.h"

namespace ckptd {
namespace {

namespace fb = ckpt::fb;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ckpt::RunId kRun = 4;
constexpr ckpt::RunId kRemovedRun = 9;

fb::RecordT run_created(ckpt::RunId run, const std::string& name) {
  fb::RunCreatedT body;
  body.run = run;
  body.name = name;
  return make_record(std::move(body));
}

fb::RecordT lineage_opened() {
  fb::LineageOpenedT body;
  body.run = kRun;
  body.lineage = 1;
  return make_record(std::move(body));
}

fb::RecordT epoch_opened(std::vector<uint64_t> members) {
  fb::EpochOpenedT body;
  body.run = kRun;
  body.epoch = 3;
  body.lineage = 1;
  body.size = static_cast<uint32_t>(members.size());
  body.elastic = true;
  body.members = std::move(members);
  return make_record(std::move(body));
}

fb::RecordT store_closed() {
  fb::StoreClosedT body;
  body.epochs_told = true;
  return make_record(std::move(body));
}

class RecoverTest : public ::testing::Test {
 protected:
  Recovered start() {
    history = std::make_unique<History>(
        History::Needs{.disk = disk,
                       .executor = *executor,
                       .turn = turn,
                       .open_catalog = [this]() -> Result<OpenedKvStore> {
                         CKPT_TRY(catalog->open());
                         return OpenedKvStore{.store = make_memory_store(catalog), .broken = {}};
                       },
                       .apply_turn = {},
                       .on_record = [](const fb::RecordT&) {}});
    const RecoveryNeeds needs{.disk = disk, .history = *history, .turn = turn, .random_seed = 1};
    auto recovered = recover(needs);
    EXPECT_TRUE(recovered.ok()) << (recovered.ok() ? "" : recovered.error().message);
    return recovered.ok() ? std::move(recovered).value() : Recovered();
  }
  void record(const std::vector<fb::RecordT>& records) {
    EXPECT_TRUE(history->record_blocking(records).ok());
  }
  // Ends without a StoreClosed record, as a crash does.
  void stop() {
    while (!history->idle()) {
      disk.wait();
      disk.reap();
    }
    history->close();
    history.reset();
  }
  void create_empty_segment() {
    auto created = disk.create_file(segment_path(1), 1u << 20);
    ASSERT_TRUE(created.ok());
    disk.close(disk.adopt(std::move(created).value()));
  }

  MemoryDisk disk{MemoryDisk::Options{}};
  std::shared_ptr<MemoryKvImage> catalog = std::make_shared<MemoryKvImage>();
  std::unique_ptr<Executor> executor = make_inline_executor();
  Turn turn{[] { return uint64_t{1'700'000'000'000'000'000}; }};
  std::unique_ptr<History> history;
};

TEST_F(RecoverTest, NewStoreStartsAllNumbers) {
  const Recovered recovered = start();
  EXPECT_THAT(recovered.runs, IsEmpty());
  EXPECT_EQ(recovered.next_run, 1u);
  EXPECT_EQ(recovered.next_segment, 1u);
  EXPECT_EQ(recovered.first_extent, (uint64_t{1} << 32) + 1);
  EXPECT_THAT(recovered.unlisted, IsEmpty());
  EXPECT_TRUE(recovered.clean);
  ASSERT_NE(recovered.segments, nullptr);
  EXPECT_EQ(recovered.segments->store(), history->store_id());
  stop();
}

TEST_F(RecoverTest, EachStartHasNewExtentNumbers) {
  start();
  stop();
  const Recovered recovered = start();
  EXPECT_EQ(recovered.first_extent, (uint64_t{2} << 32) + 1);
  EXPECT_FALSE(recovered.clean);
  stop();
}

TEST_F(RecoverTest, RemovedRunsKeepTheirNumber) {
  start();
  fb::RunRemovedT removed;
  removed.run = kRemovedRun;
  removed.time_ns = 1;
  record({run_created(kRun, "tiny"), run_created(kRemovedRun, "gone"),
          make_record(std::move(removed))});
  stop();
  const Recovered recovered = start();
  ASSERT_EQ(recovered.runs.size(), 1u);
  EXPECT_EQ(recovered.runs[0].name, "tiny");
  EXPECT_EQ(recovered.next_run, kRemovedRun + 1);
  stop();
}

TEST_F(RecoverTest, MembersMayRejoinAfterACrash) {
  start();
  record({run_created(kRun, "tiny"), lineage_opened(), epoch_opened({7, 8})});
  stop();
  const Recovered recovered = start();
  ASSERT_EQ(recovered.runs.size(), 1u);
  const RecoveredRun& run = recovered.runs[0];
  EXPECT_EQ(run.id, kRun);
  EXPECT_EQ(run.epoch, 3u);
  EXPECT_EQ(run.rejoining, 2u);
  EXPECT_EQ(run.lineage, 1u);
  EXPECT_THAT(run.members, ElementsAre(7, 8));
  EXPECT_FALSE(run.newest);
  stop();
}

TEST_F(RecoverTest, NoMemberRejoinsAnEpochThatIsOver) {
  start();
  record({run_created(kRun, "tiny"), lineage_opened(), epoch_opened({7, 8}), store_closed()});
  stop();
  const Recovered recovered = start();
  EXPECT_TRUE(recovered.clean);
  ASSERT_EQ(recovered.runs.size(), 1u);
  EXPECT_EQ(recovered.runs[0].epoch, 3u);
  EXPECT_EQ(recovered.runs[0].rejoining, 0u);
  stop();
}

TEST_F(RecoverTest, SegmentsWithoutCommitsAreRemoved) {
  start();
  create_empty_segment();
  stop();
  const Recovered recovered = start();
  EXPECT_EQ(recovered.next_segment, 2u);
  EXPECT_THAT(disk.list(kSegmentsDirectory).value(), IsEmpty());
  stop();
}

TEST_F(RecoverTest, ATornEndKeepsUnlistedSegments) {
  start();
  create_empty_segment();
  const uint64_t last = history->journal().bytes();
  record({run_created(kRun, "tiny")});
  stop();
  disk.flip(kJournalPath, last + 40);
  catalog = std::make_shared<MemoryKvImage>();  // else the record is salvaged from it
  const Recovered recovered = start();
  EXPECT_THAT(recovered.runs, IsEmpty());
  EXPECT_EQ(disk.list(kSegmentsDirectory).value().size(), 1u);
  stop();
}

}  // namespace
}  // namespace ckptd
