// Every change that a trainer can make to a sealed slab is detected.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include "ckptd/io/memory_disk.h"
#include "ckptd/staging/page_guard.h"
#include "tests/ckptd/staging/small_trainer.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

constexpr uint64_t kPayloadSlab = 256 << 10;

class CheckPayloadTest : public testing::Test {
 protected:
  CheckPayloadTest() {
    run_all(disk_, *executor_);
    trainer_ = std::make_unique<SmallTrainer>(granted_);
    slab_ = staging_.lease(granted_.arena, 1).at(0);
    // Two small fragments, a gap up to the block, a large fragment, padding after it.
    filled_ = trainer_->fill(slab_, {{1, 1000}, {2, 500}, {3, 100'000}}, 1);
    staged_ =
        staging_.seal(granted_.arena, slab_, filled_.payload_bytes, filled_.fragments).value();
  }
  ~CheckPayloadTest() override {
    staged_ = StagedSlab();
    staging_.close();
  }

  void expect_corrupt(const char* reason) {
    const Status status = check_payload(staged_);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(status.error().message, HasSubstr(reason));
  }
  void punch(uint64_t offset, uint64_t length) {
    ASSERT_EQ(
        fallocate(granted_.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(slab_ * kPayloadSlab + offset), static_cast<off_t>(length)),
        0);
  }

  MemoryDisk disk_{{.seed = 1}};
  std::unique_ptr<Executor> executor_ = make_inline_executor();
  Staging staging_{disk_, *executor_, {.arena_bytes_total = 8 * kPayloadSlab, .restore_slabs = 1}};
  Staging::Granted granted_ = staging_.create(1000, 4 * kPayloadSlab, kPayloadSlab).value();
  std::unique_ptr<SmallTrainer> trainer_;
  uint32_t slab_ = 0;
  SmallTrainer::Filled filled_;
  StagedSlab staged_;
};

TEST_F(CheckPayloadTest, SealedSlabPasses) { EXPECT_TRUE(check_payload(staged_).ok()); }

TEST_F(CheckPayloadTest, AWriteAfterTheSealNamesTheUnit) {
  trainer_->slab(slab_)[1200] ^= std::byte{1};
  expect_corrupt("unit 2 bytes [0, 500)");
}

TEST_F(CheckPayloadTest, TheGapMustStayZero) {
  trainer_->slab(slab_)[2000] = std::byte{1};
  expect_corrupt("before the fragment of unit 3 at payload offset 4096 are not zero");
}

TEST_F(CheckPayloadTest, ThePaddingMustStayZero) {
  trainer_->slab(slab_)[filled_.payload_bytes] = std::byte{1};
  expect_corrupt("after the last fragment are not zero");
}

TEST_F(CheckPayloadTest, SealClearsThePadding) {
  staged_ = StagedSlab();
  ASSERT_EQ(staging_.lease(granted_.arena, 1).at(0), slab_);
  filled_ = trainer_->fill(slab_, {{1, 1000}}, 1);
  trainer_->slab(slab_)[1000] = std::byte{77};
  staged_ = staging_.seal(granted_.arena, slab_, filled_.payload_bytes, filled_.fragments).value();
  EXPECT_TRUE(check_payload(staged_).ok());
}

TEST_F(CheckPayloadTest, PunchedHoleEndsTrustInTheArena) {
  if (!page_guard_available()) GTEST_SKIP() << "no page tables to look at here";
  ASSERT_TRUE(staged_.buffer().has_value());
  punch(8192, 4096);
  expect_corrupt("1 pages were exchanged");

  staged_ = StagedSlab();
  EXPECT_FALSE(staging_.stats().zero_copy);
  ASSERT_EQ(staging_.lease(granted_.arena, 1).at(0), slab_);
  const auto again = trainer_->fill(slab_ + 1, {{1, 1000}}, 1);
  ASSERT_EQ(staging_.lease(granted_.arena, 1).at(0), slab_ + 1);
  StagedSlab next =
      staging_.seal(granted_.arena, slab_ + 1, again.payload_bytes, again.fragments).value();
  EXPECT_FALSE(next.buffer().has_value()) << "no write from pinned pages of this arena";
  EXPECT_TRUE(check_payload(next).ok()) << "what was not punched still holds";
  next.mark_writing();
  const ckpt::SnapshotKey snapshot{.run = 1, .lineage = 1, .epoch = 1, .step = 5};
  next.mark_durable(snapshot);
  EXPECT_FALSE(staging_.find_cached(1000, snapshot, 1, 0, 1000).has_value());
}

TEST_F(CheckPayloadTest, RefilledHoleIsDetected) {
  if (!page_guard_available()) GTEST_SKIP() << "no page tables to look at here";
  const MutableByteView bytes = trainer_->slab(slab_);
  const std::vector<std::byte> before(bytes.begin(), bytes.end());
  punch(8192, 8192);
  std::copy(before.begin(), before.end(), bytes.begin());
  expect_corrupt("2 pages were exchanged");
}

TEST_F(CheckPayloadTest, HolePunchedBeforeSealIsDetected) {
  if (!page_guard_available()) GTEST_SKIP() << "no page tables to look at here";
  staged_ = StagedSlab();
  ASSERT_EQ(staging_.lease(granted_.arena, 1).at(0), slab_);
  punch(0, 4096);
  filled_ = trainer_->fill(slab_, {{1, 1000}}, 1);
  staged_ = staging_.seal(granted_.arena, slab_, filled_.payload_bytes, filled_.fragments).value();
  expect_corrupt("1 pages were exchanged");
}

}  // namespace
}  // namespace ckptd
