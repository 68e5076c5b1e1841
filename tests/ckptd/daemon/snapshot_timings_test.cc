// Timings of snapshots, from seals of the ranks to the answer, the log and the metrics. The clock
// stands still except for the disk operations that a test makes slow.
#include <gmock/gmock.h>

#include <map>
#include <optional>

#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/io/passing_disk.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecondNs = 1'000'000'000;

// Each completion of one kind of operation, on files below one directory, takes a second.
class SlowKind final : public PassingDisk {
 public:
  using PassingDisk::PassingDisk;

  void slow_down(IoOp op, std::string_view directory) {
    op_ = op;
    directory_ = directory;
  }
  std::chrono::nanoseconds now() const { return now_; }

  void submit(IoRequest request) override {
    const auto path = paths_.find(request.file);
    if (request.op == op_ && path != paths_.end() && path->second.starts_with(directory_)) {
      request.on_done = [this, on_done = std::move(request.on_done)](const auto& result) {
        now_ += std::chrono::seconds(1);
        on_done(result);
      };
    }
    disk_.submit(std::move(request));
  }
  Result<FileId> open(std::string_view path, const OpenOptions& options) override {
    auto file = disk_.open(path, options);
    if (file.ok()) paths_[*file] = path;
    return file;
  }
  FileId adopt(NewFile file) override {
    const std::string path(file.path);
    return paths_.emplace(disk_.adopt(std::move(file)), path).first->first;
  }

 private:
  IoOp op_ = IoOp::kRead;
  std::string directory_ = "none";
  std::chrono::nanoseconds now_{0};
  std::map<FileId, std::string> paths_;
};

class SnapshotTimingsTest : public ::testing::Test {
 protected:
  // Saves a snapshot of two ranks, so that the segments of the next one are open.
  void start() {
    disk_.emplace(world_.disk());
    world_.set_door(&*disk_);
    ASSERT_TRUE(world_.start().ok());
    job_.start();
    job_.commit(1);
  }
  ckpt::SnapshotTimings commit(ckpt::Step step) {
    job_.commit(step);
    EXPECT_EQ(job_.ranks[0]->snapshot(step).timings, job_.ranks[1]->snapshot(step).timings);
    return job_.ranks[0]->snapshot(step).timings;
  }
  // `part` alone took time: some seconds.
  static void expect_only(ckpt::SnapshotTimings timings, uint64_t ckpt::SnapshotTimings::*part) {
    EXPECT_GE(std::exchange(timings.*part, 0), kSecondNs);
    EXPECT_EQ(timings, ckpt::SnapshotTimings());
  }

  std::optional<SlowKind> disk_;
  World world_{{.stopwatch = [this] { return disk_->now(); }}};
  Job job_{world_, 2};
};

TEST_F(SnapshotTimingsTest, SlowSegmentWritesCountAsWrite) {
  start();
  disk_->slow_down(IoOp::kWrite, "segments/");
  expect_only(commit(2), &ckpt::SnapshotTimings::write_ns);
}

TEST_F(SnapshotTimingsTest, SlowSegmentSyncsCountAsSync) {
  start();
  disk_->slow_down(IoOp::kSync, "segments/");
  expect_only(commit(2), &ckpt::SnapshotTimings::sync_ns);
}

TEST_F(SnapshotTimingsTest, SlowJournalWritesCountAsJournal) {
  start();
  disk_->slow_down(IoOp::kWrite, "journal/");
  expect_only(commit(2), &ckpt::SnapshotTimings::journal_ns);
}

TEST_F(SnapshotTimingsTest, SlowJournalSyncsCountAsJournal) {
  start();
  disk_->slow_down(IoOp::kSync, "journal/");
  expect_only(commit(2), &ckpt::SnapshotTimings::journal_ns);
}

TEST_F(SnapshotTimingsTest, AnswerHasLongestPartOfAnyRank) {
  start();
  job_.ranks[0]->timings = {.plan_ns = 4, .begin_ns = 5, .copy_ns = 60, .seal_ns = 7};
  job_.ranks[1]->timings = {.plan_ns = 8, .slab_wait_ns = 9, .copy_ns = 10};
  EXPECT_EQ(commit(2),
            (ckpt::SnapshotTimings{
                .plan_ns = 8, .begin_ns = 5, .slab_wait_ns = 9, .copy_ns = 60, .seal_ns = 7}));
}

TEST_F(SnapshotTimingsTest, FailedSnapshotReportsItsTimings) {
  start();
  job_.ranks[0]->timings = {.copy_ns = 60};
  job_.begin(2);
  ASSERT_TRUE(job_.ranks[0]->fill(2));
  fb::AbortSnapshotT abort;
  abort.epoch = job_.ranks[1]->epoch().epoch;
  abort.step = 2;
  abort.reason = "of this test";
  job_.ranks[1]->send(std::move(abort));
  world_.run();
  job_.listen();
  const FakeTrainer::Snapshot& failed = job_.ranks[0]->snapshot(2);
  ASSERT_EQ(failed.level, fb::SnapshotLevel::Failed);
  EXPECT_EQ(failed.timings, (ckpt::SnapshotTimings{.copy_ns = 60}));
}

TEST_F(SnapshotTimingsTest, MetricsCountDurableSnapshotsByPart) {
  start();  // of ranks that tell no timings
  job_.ranks[0]->timings = {.copy_ns = 2 * kSecondNs};
  commit(2);
  const std::string text = world_.daemon().metrics_text();
  EXPECT_THAT(text, HasSubstr("\nckptd_snapshot_seconds_sum{part=\"copy\"} 2\n"
                              "ckptd_snapshot_seconds_count{part=\"copy\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nckptd_snapshot_seconds_count{part=\"journal\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("\nckptd_snapshot_seconds_bucket{part=\"copy\",le=\"3\"} 1\n"));
}

}  // namespace
}  // namespace ckptd::testing
