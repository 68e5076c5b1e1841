// Memory that is faulted in before a session asks for it.
#include <gmock/gmock.h>

#include "ckptd/io/memory_disk.h"
#include "ckptd/limits.h"
#include "ckptd/staging/staging.h"
#include "tests/ckptd/staging/small_trainer.h"

namespace ckptd {
namespace {

using testing::Each;
using testing::SizeIs;

constexpr uint64_t kSlab = 64 << 10;
constexpr uid_t kAlice = 1000;

class WarmPoolTest : public testing::Test {
 protected:
  ~WarmPoolTest() override {
    if (staging_) staging_->close();
  }
  void make(uint64_t total, uint64_t piece, uint64_t pool) {
    staging_ = std::make_unique<Staging>(disk_, *executor_,
                                         Staging::Options{.arena_bytes_total = total,
                                                          .session_bytes_default = piece,
                                                          .warm_pool_bytes = pool,
                                                          .restore_slabs = 2});
  }
  // Until nothing is left to do.
  void warm() {
    run_all(disk_, *executor_);  // sessions come first
    for (uint64_t before = ~uint64_t{0}; before != staging_->stats().warm_pool_bytes;) {
      before = staging_->stats().warm_pool_bytes;
      staging_->warm();
      run_all(disk_, *executor_);
    }
  }
  Staging::Granted open(uint64_t bytes, uint64_t slab_bytes = kSlab) {
    auto granted = staging_->create(kAlice, bytes, slab_bytes);
    EXPECT_TRUE(granted.ok()) << granted.error().message;
    return granted.ok() ? *granted : Staging::Granted();
  }

  MemoryDisk disk_{{.seed = 1}};
  std::unique_ptr<Executor> executor_ = make_inline_executor();
  std::unique_ptr<Staging> staging_;
};

TEST_F(WarmPoolTest, AnArenaOfThePoolIsAsAnyOther) {
  make(64 * kSlab, 8 * kSlab, 8 * kSlab);
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 0u);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 8 * kSlab);
  EXPECT_EQ(staging_->stats().arena_bytes, 0u);
  for (const uint64_t slabs : {8, 12, 4}) {  // as a piece, larger, smaller
    SCOPED_TRACE(slabs);
    warm();
    const Staging::Granted granted = open(slabs * kSlab);
    EXPECT_EQ(granted.layout.arena_bytes(), slabs * kSlab);
    EXPECT_EQ(granted.warm_bytes, std::min(slabs, uint64_t{8}) * kSlab);
    EXPECT_EQ(staging_->stats().warm_pool_bytes, 0u);
    SmallTrainer trainer(granted);
    for (uint32_t slab = 0; slab < slabs; ++slab) {
      EXPECT_THAT(trainer.slab(slab), Each(std::byte{0}));
    }
    run_all(disk_, *executor_);
    ASSERT_THAT(staging_->lease(granted.arena, 64), SizeIs(slabs - 2));
    const auto slab = static_cast<uint32_t>(slabs - 1);
    const auto filled = trainer.fill(slab, {{1, 5000}, {2, kSlab / 2}}, slabs);
    auto staged = staging_->seal(granted.arena, slab, filled.payload_bytes, filled.fragments);
    ASSERT_TRUE(staged.ok()) << staged.error().message;
    EXPECT_TRUE(staged->buffer().has_value());
    EXPECT_TRUE(check_payload(*staged).ok());
  }
}

TEST_F(WarmPoolTest, MuchSmallerArenasAreNotCutOutOfIt) {
  const uint64_t piece = limits::kWarmPoolTrimBytesMax + 4 * kSlab;
  make(4 * piece, piece, piece);
  warm();
  EXPECT_EQ(open(3 * kSlab).warm_bytes, 0u);
  EXPECT_EQ(staging_->stats().warm_pool_bytes, piece) << "for one that needs it";
  EXPECT_EQ(open(4 * kSlab).warm_bytes, 4 * kSlab);
}

TEST_F(WarmPoolTest, HasAsManyPiecesAsItMay) {
  make(64 * kSlab, 8 * kSlab, 20 * kSlab);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 16 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 8 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 8 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 0u) << "none was left";
}

TEST_F(WarmPoolTest, IsSmallerThanAPieceIfItMayNotHaveOne) {
  make(64 * kSlab, 8 * kSlab, 3 * kSlab);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 3 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 3 * kSlab);
}

TEST_F(WarmPoolTest, HoldsNothingThatNoSessionCouldGet) {
  make(20 * kSlab, 8 * kSlab, 16 * kSlab);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 16 * kSlab);
  const Staging::Granted first = open(8 * kSlab);
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 8 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 8 * kSlab);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 0u) << "4 slabs are left of the total";
  staging_->session_ended(first.arena);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 8 * kSlab);
  // A session that takes more of the total than leaves room for the pool.
  const Staging::Granted third = open(3 * kSlab, kSlab);
  EXPECT_EQ(third.warm_bytes, 3 * kSlab);
  warm();
  const Staging::Granted fourth = open(9 * kSlab);
  EXPECT_EQ(fourth.layout.slab_count, 9u);
  EXPECT_EQ(fourth.warm_bytes, 8 * kSlab);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 0u);
}

// A step of the pool on its way must not be pulled away from under the thread that is at it.
TEST_F(WarmPoolTest, MayBeBusyWhenItIsWanted) {
  const uint64_t piece = 2 * limits::kWarmPoolStepBytes;
  make(2 * piece, piece, piece);
  staging_->warm();
  executor_->reap();
  staging_->warm();  // half of it is there
  const Staging::Granted granted = open(2 * piece);
  EXPECT_EQ(granted.warm_bytes, 0u);
  EXPECT_EQ(granted.layout.arena_bytes(), 2 * piece);
  run_all(disk_, *executor_);
  EXPECT_THAT(staging_->lease(granted.arena, ~0u), SizeIs(granted.layout.slab_count - 2));
}

TEST_F(WarmPoolTest, IsClosedWhileItIsFilled) {
  make(64 * kSlab, 8 * kSlab, 8 * kSlab);
  staging_->warm();
  staging_->close();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 0u);
  staging_->warm();
  EXPECT_EQ(executor_->outstanding(), 0u);
}

TEST_F(WarmPoolTest, ThereIsNoneUnlessItIsAskedFor) {
  make(64 * kSlab, 8 * kSlab, 0);
  warm();
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 0u);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 0u);
}

}  // namespace
}  // namespace ckptd
