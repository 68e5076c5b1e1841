// Memory that is faulted in before a session asks for it.
#include "ckptd/staging/warm_pool.h"

#include <gmock/gmock.h>

#include "ckptd/io/memory_disk.h"
#include "ckptd/limits.h"
#include "ckptd/staging/page_guard.h"
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
    staging_ = std::make_unique<Staging>(
        disk_, *executor_,
        Staging::Options{.arena_bytes_total = total,
                         .session_bytes_default = piece,
                         .warm_pool_bytes = pool,
                         .restore_slabs = 2,
                         .available_memory = [this] { return available_; }});
  }
  // Warms the pool until nothing is left to do.
  void warm() {
    run_all(disk_, *executor_);  // sessions come first
    while (staging_->warm()) run_all(disk_, *executor_);
    run_all(disk_, *executor_);
  }
  Staging::Granted open(uint64_t bytes, uint64_t slab_bytes = kSlab) {
    auto granted = staging_->create(kAlice, bytes, slab_bytes);
    EXPECT_TRUE(granted.ok()) << granted.error().message;
    return granted.ok() ? *granted : Staging::Granted();
  }

  uint64_t pool() const { return staging_->stats().warm_pool_bytes; }

  uint64_t available_ = 1ull << 40;
  MemoryDisk disk_{{.seed = 1}};
  std::unique_ptr<Executor> executor_ = make_inline_executor();
  std::unique_ptr<Staging> staging_;
};

TEST_F(WarmPoolTest, PooledArenaBehavesLikeAnyOther) {
  make(64 * kSlab, 8 * kSlab, 8 * kSlab);
  EXPECT_EQ(pool(), 0u);
  warm();
  EXPECT_EQ(pool(), 8 * kSlab);
  EXPECT_EQ(staging_->stats().arena_bytes, 0u);
  for (const uint64_t slabs : {8, 12, 4}) {  // as a piece, larger, smaller
    SCOPED_TRACE(slabs);
    warm();
    const Staging::Granted granted = open(slabs * kSlab);
    EXPECT_EQ(granted.layout.arena_bytes(), slabs * kSlab);
    EXPECT_EQ(granted.warm_bytes, std::min(slabs, uint64_t{8}) * kSlab);
    EXPECT_EQ(pool(), 0u);
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

TEST_F(WarmPoolTest, MuchSmallerArenasDoNotUsePieces) {
  const uint64_t piece = limits::kWarmPoolTrimBytesMax + 4 * kSlab;
  make(4 * piece, piece, piece);
  warm();
  EXPECT_EQ(open(3 * kSlab).warm_bytes, 0u);
  EXPECT_EQ(pool(), piece) << "for one that needs it";
  EXPECT_EQ(open(4 * kSlab).warm_bytes, 4 * kSlab);
}

TEST_F(WarmPoolTest, HasAsManyPiecesAsAllowed) {
  make(64 * kSlab, 8 * kSlab, 20 * kSlab);
  warm();
  EXPECT_EQ(pool(), 16 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 8 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 8 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 0u) << "none was left";
}

TEST_F(WarmPoolTest, MayBeSmallerThanOnePiece) {
  make(64 * kSlab, 8 * kSlab, 3 * kSlab);
  warm();
  EXPECT_EQ(pool(), 3 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 3 * kSlab);
}

TEST_F(WarmPoolTest, HoldsNoMemoryBeyondTheTotal) {
  make(20 * kSlab, 8 * kSlab, 16 * kSlab);
  warm();
  EXPECT_EQ(pool(), 16 * kSlab);
  const Staging::Granted first = open(8 * kSlab);
  EXPECT_EQ(pool(), 8 * kSlab);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 8 * kSlab);
  warm();
  EXPECT_EQ(pool(), 0u) << "4 slabs are left of the total";
  staging_->session_ended(first.arena);
  warm();
  EXPECT_EQ(pool(), 8 * kSlab);
  // A session that leaves the pool too little of the total.
  const Staging::Granted third = open(3 * kSlab, kSlab);
  EXPECT_EQ(third.warm_bytes, 3 * kSlab);
  warm();
  const Staging::Granted fourth = open(9 * kSlab);
  EXPECT_EQ(fourth.layout.slab_count, 9u);
  EXPECT_EQ(fourth.warm_bytes, 8 * kSlab);
  warm();
  EXPECT_EQ(pool(), 0u);
}

// A piece is handed out as far as it is warm, but its memory stays while a thread still faults it
// in.
TEST_F(WarmPoolTest, PieceMayBeTakenDuringFault) {
  const uint64_t piece = 3 * limits::kWarmPoolStepBytes;
  make(2 * piece, piece, piece);
  staging_->warm();
  run_all(disk_, *executor_);
  EXPECT_EQ(pool(), limits::kWarmPoolStepBytes);
  EXPECT_EQ(open(piece).warm_bytes, limits::kWarmPoolStepBytes);
  run_all(disk_, *executor_);

  staging_->warm();
  executor_->reap();
  staging_->warm();  // a thread is at the second step
  const Staging::Granted granted = open(piece);
  EXPECT_EQ(granted.warm_bytes, 0u);
  EXPECT_EQ(granted.layout.arena_bytes(), piece);
  run_all(disk_, *executor_);
  EXPECT_THAT(staging_->lease(granted.arena, ~0u), SizeIs(granted.layout.slab_count - 2));
  warm();
  EXPECT_EQ(pool(), 0u) << "nobody could get it any more";
}

// Warm memory has all its pages: the first use causes no page fault.
TEST(WarmPool, TakenArenaKeepsItsWarmPages) {
  WarmPool pool(8 * kSlab, 8 * kSlab);
  ASSERT_TRUE(pool.add().ok());
  const auto fault = pool.next_fault();
  ASSERT_TRUE(fault && populate(fault->guard).ok() && populate(fault->view).ok());
  pool.faulted(true);
  const ckpt::ArenaLayout layout{.slab_bytes = kSlab, .slab_count = 12};
  ASSERT_EQ(pool.warm_bytes_for(layout), 8 * kSlab);
  const auto memory = pool.take(layout);
  ASSERT_TRUE(memory.ok());
  for (const ckpt::ArenaMapping* mapping : {&memory->guard, &memory->view}) {
    EXPECT_EQ(absent_pages(mapping->bytes().first(8 * kSlab)).value(), 0u);
    EXPECT_GT(absent_pages(mapping->bytes()).value(), 0u);
  }
}

TEST_F(WarmPoolTest, LeavesMemoryForOtherProcesses) {
  make(64 * kSlab, 8 * kSlab, 24 * kSlab);
  available_ = 15 * kSlab;
  warm();
  EXPECT_EQ(pool(), 0u);
  available_ = 16 * kSlab;
  warm();
  EXPECT_EQ(pool(), 24 * kSlab);
  available_ = 4 * kSlab;
  warm();
  EXPECT_EQ(pool(), 24 * kSlab);
  for (uint64_t left : {16, 8, 0}) {
    available_ = 3 * kSlab;
    warm();
    EXPECT_EQ(pool(), left * kSlab);
  }
}

// Warm memory counts once, and memory that is not warm must be available.
TEST_F(WarmPoolTest, GrantsAtMostAvailableMemory) {
  make(64 * kSlab, 8 * kSlab, 16 * kSlab);
  warm();
  available_ = 2 * kSlab;
  const Staging::Granted first = open(10 * kSlab);
  EXPECT_EQ(first.warm_bytes, 8 * kSlab);
  EXPECT_EQ(first.layout.slab_count, 10u);
  available_ = 3 * kSlab;
  const Staging::Granted second = open(20 * kSlab);
  EXPECT_EQ(second.warm_bytes, 0u);
  EXPECT_EQ(second.layout.slab_count, 3u);
  EXPECT_EQ(pool(), 0u) << "it is released for the next one";
}

TEST_F(WarmPoolTest, CountsAdoptedArenas) {
  make(16 * kSlab, 8 * kSlab, 16 * kSlab);
  const ckpt::ArenaLayout layout{.slab_bytes = kSlab, .slab_count = 12};
  warm();
  EXPECT_EQ(pool(), 16 * kSlab);
  auto created = ckpt::ArenaMapping::create(layout).value();
  ASSERT_TRUE(staging_->adopt(kAlice, std::move(created.fd), layout.arena_bytes(), kSlab).ok());
  warm();
  EXPECT_EQ(pool(), 0u);
}

TEST_F(WarmPoolTest, HasABoundedNumberOfPieces) {
  make(1024 * kSlab, kSlab, 1024 * kSlab);
  warm();
  EXPECT_EQ(pool(), limits::kWarmPoolPiecesMax * kSlab);
}

TEST_F(WarmPoolTest, CloseWhileFillingEndsThePool) {
  make(64 * kSlab, 8 * kSlab, 8 * kSlab);
  staging_->warm();
  staging_->close();
  EXPECT_EQ(pool(), 0u);
  staging_->warm();
  EXPECT_EQ(executor_->outstanding(), 0u);
}

TEST_F(WarmPoolTest, IsEmptyUnlessConfigured) {
  make(64 * kSlab, 8 * kSlab, 0);
  warm();
  EXPECT_EQ(pool(), 0u);
  EXPECT_EQ(open(8 * kSlab).warm_bytes, 0u);
}

}  // namespace
}  // namespace ckptd
