#include "ckptd/snapshots/commit_record.h"

#include <gmock/gmock.h>

#include <utility>

namespace ckptd {
namespace {

using ::testing::ElementsAre;

constexpr ckpt::SnapshotKey kKey{.run = 1, .lineage = 2, .epoch = 3, .step = 40, .attempt = 5};

WrittenExtent extent(ckpt::Rank rank, uint64_t offset, ckpt::UnitId unit) {
  WrittenExtent written;
  written.segment = 9;
  written.offset = offset;
  written.header_bytes = 4096;
  written.payload_bytes = 100;
  written.rank = rank;
  written.fragments = {{.unit = unit, .codec = 0, .length = 100}};
  return written;
}

TEST(CommitRecord, DoesNotDependOnTheOrderOfWrites) {
  OpenSnapshotState open;
  open.extents = {extent(1, 8192, 2), extent(0, 65536, 1), extent(0, 4096, 0)};
  const auto record = commit_record({.snapshot = kKey, .full = true}, {}, open);
  ASSERT_EQ(record.extents.size(), 3u);
  EXPECT_EQ(record.extents[0]->offset, 4096u);
  EXPECT_EQ(record.extents[1]->offset, 65536u);
  EXPECT_EQ(record.extents[2]->offset, 8192u);
  EXPECT_EQ(record.step, 40u);
  EXPECT_TRUE(record.full);
}

TEST(CommitRecord, RecordGivesCommitInfo) {
  OpenSnapshotState open;
  open.extents = {extent(0, 4096, 7), extent(0, 8192, 3), extent(1, 16384, 3)};
  Ingest::CommitAction action{.snapshot = kKey};
  action.metrics["loss"] = 0.5;
  auto record = commit_record(action, {}, open);
  record.time_ns = 17;
  const CommitInfo info = info_of(record);
  EXPECT_EQ(info.snapshot, kKey);
  EXPECT_EQ(info.time_ns, 17u);
  EXPECT_THAT(info.units, ElementsAre(3, 7));
  EXPECT_EQ(info.metrics.at("loss"), 0.5);
  EXPECT_EQ(info.lost_tokens, 0u);
}

TEST(CommitRecord, RefusalRecordNamesSnapshotAndAlarms) {
  ckpt::AlarmList alarms;
  alarms.add({.unit = 4, .kind = ckpt::fb::AlarmKind::NotFinite, .value = 6});
  alarms.left_out = 2;
  const auto refused = refusal_record(kKey, alarms);
  EXPECT_EQ(refused.run, 1u);
  EXPECT_EQ(refused.step, 40u);
  EXPECT_EQ(refused.attempt, 5u);
  EXPECT_EQ(refused.alarms.size(), 1u);
  EXPECT_EQ(refused.alarms_left_out, 2u);
}

}  // namespace
}  // namespace ckptd
