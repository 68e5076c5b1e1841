// Segment files under wrong names, and files with a segment's name that are none: a start must not
// take their bytes for free space.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A store of two segments: each start of a daemon makes one.
class SegmentNamesTest : public ::testing::Test {
 protected:
  SegmentNamesTest() : world({}), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
    job.commit(5);
    world.kill_daemon();
    EXPECT_TRUE(world.start().ok());
    job.start(fb::ResumeMode::Latest);
    job.commit(10);
    world.kill_daemon();
  }
  std::vector<std::byte> bytes_of(ckpt::SegmentId segment) {
    return file_bytes(world.disk(), segment_path(segment));
  }
  void put(ckpt::SegmentId segment, const std::vector<std::byte>& bytes) {
    put_file(world.disk(), segment_path(segment), bytes);
  }
  void expect_refused_untouched(const std::string& says) {
    const auto files = all_files(world.disk());
    const Status started = world.start();
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error().code, ckpt::ErrorCode::kFailedPrecondition);
    EXPECT_THAT(started.error().message,
                AllOf(HasSubstr(says), HasSubstr("Give each file its own name back")));
    EXPECT_TRUE(all_files(world.disk()) == files) << "a file was changed, made or removed";
  }
  void expect_whole_store() {
    const Status started = world.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    ASSERT_TRUE(root.connect());
    EXPECT_THAT(job.log(root), ElementsAre(10, 5));
    job.start(fb::ResumeMode::Latest);
    job.expect_restores(*job.ranks[0], 10);
    job.expect_restores(*job.ranks[0], 5);
  }
  World world;
  Job job;
};

// Regression: the start removed the file, since no commit has bytes in a segment of that name.
TEST_F(SegmentNamesTest, RenamedSegmentRefusesTheStart) {
  const auto bytes = bytes_of(1);
  put(9, bytes);
  ASSERT_TRUE(world.disk().remove(segment_path(1)).ok());
  expect_refused_untouched("segments/000009.seg is segments/000001.seg");
  put(1, bytes);
  ASSERT_TRUE(world.disk().remove(segment_path(9)).ok());
  expect_whole_store();
}

// Regression: the start truncated each file after the last extent of the other one.
TEST_F(SegmentNamesTest, SwappedSegmentsRefuseTheStart) {
  const auto first = bytes_of(1);
  const auto second = bytes_of(2);
  put(1, second);
  put(2, first);
  expect_refused_untouched("segments/000001.seg is segments/000002.seg, segments/000002.seg is ");
  put(1, first);
  put(2, second);
  expect_whole_store();
}

TEST_F(SegmentNamesTest, CopyOfASegmentRefusesTheStart) {
  put(7, bytes_of(2));
  expect_refused_untouched("segments/000007.seg is segments/000002.seg");
  ASSERT_TRUE(world.disk().remove(segment_path(7)).ok());
  expect_whole_store();
}

// Regression: any file with the name of a segment that no commit needs was removed.
TEST_F(SegmentNamesTest, FileThatIsNoSegmentIsLeftAlone) {
  const std::vector<std::byte> notes(8192, std::byte{'x'});
  put(9, notes);
  put(8, std::vector<std::byte>(8192));  // no bytes: its header was never written
  expect_whole_store();
  EXPECT_EQ(bytes_of(9), notes);
  EXPECT_THAT(world.disk().list(kSegmentsDirectory).value(), testing::Not(Contains("000008.seg")));
}

// Regression: its bytes after the last listed extent were given back.
TEST_F(SegmentNamesTest, SegmentWithDamagedHeaderKeepsItsBytes) {
  world.disk().flip(segment_path(1), 100);
  const auto damaged = bytes_of(1);
  expect_whole_store();
  EXPECT_EQ(bytes_of(1), damaged);
}

}  // namespace
}  // namespace ckptd::testing
