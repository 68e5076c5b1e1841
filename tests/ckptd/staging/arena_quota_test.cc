// Bounds on the memory of arenas: of the daemon, of a user and of a session.
#include "ckptd/staging/arena_quota.h"

#include "tests/ckptd/staging/staging_fixture.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

TEST_F(StagingTest, ArenasAreBoundedByTheTotal) {
  SmallTrainer first = open(kAlice, 12 * kSlab);
  auto second = staging_->create(kAlice, 8 * kSlab, kSlab);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->layout.slab_count, 4u) << "less than asked for is granted";
  auto third = staging_->create(kAlice, 8 * kSlab, kSlab);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(
      third.error().message,
      HasSubstr(
          "ckptd has 1.0 MiB for the arenas of all sessions, of which 1.0 MiB are in use: start "
          "ckptd with an --arena that has room for all sessions together, or end some of them "
          "(ckptctl status lists them)"));
}

// A client waits for room, but not for room that cannot come.
TEST_F(StagingTest, ImpossibleArenaIsInvalidArgument) {
  Staging staging(disk_, *executor_,
                  {.arena_bytes_total = 16 * kSlab,
                   .session_bytes_default = 4 * kSlab,
                   .user_bytes_max = [](uid_t) { return 3 * kSlab; }});
  const auto refused = staging.create(kAlice, 4 * kSlab, 2 * kSlab);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("does not hold two slabs of 128.0 KiB"));
  EXPECT_THAT(refused.error().message, HasSubstr("a larger --user-arena-max"));
  EXPECT_TRUE(staging.create(kAlice, 4 * kSlab, kSlab).ok()) << "less than asked for is granted";
  staging.close();
}

// One user cannot lock the others out, neither with live sessions nor with memory of dead ones.
TEST_F(StagingTest, ArenasOfUserAreBounded) {
  staging_->close();
  staging_ = std::make_unique<Staging>(
      disk_, *executor_,
      Staging::Options{
          .arena_bytes_total = 16 * kSlab,
          .session_bytes_default = 8 * kSlab,
          .user_bytes_max = [](uid_t uid) { return uid == kAlice ? 12 * kSlab : UINT64_MAX; },
          .restore_slabs = 2});
  SmallTrainer first = open(kAlice);
  SmallTrainer second = open(kAlice);
  EXPECT_EQ(staging_->stats().arena_bytes, 12 * kSlab) << "less than asked for is granted";
  const auto refused = staging_->create(kAlice, 2 * kSlab, kSlab);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().detail, ckpt::ErrorDetail::kNoArenaRoom);
  EXPECT_THAT(refused.error().message,
              HasSubstr("0 B can be given: the sessions of user 1000 have 768.0 KiB of arenas and "
                        "may have 768.0 KiB"));
  EXPECT_THAT(refused.error().message, HasSubstr("a larger --user-arena-max"));
  auto created =
      ckpt::ArenaMapping::create(ckpt::ArenaLayout{.slab_bytes = kSlab, .slab_count = 2}).value();
  EXPECT_FALSE(staging_->adopt(kAlice, std::move(created.fd), 2 * kSlab, kSlab).ok());

  SmallTrainer bob = open(kBob, 4 * kSlab);
  EXPECT_EQ(staging_->stats().arena_bytes, 16 * kSlab);
  // The first arena's durable slabs stay until Alice needs the room herself.
  make_durable(first, staging_->lease(first.arena, 1).at(0), 7, kStep5);
  make_durable(bob, staging_->lease(bob.arena, 1).at(0), 8, kStep5);
  staging_->session_ended(first.arena);
  staging_->session_ended(bob.arena);
  EXPECT_EQ(staging_->stats().arenas, 3u);
  SmallTrainer third = open(kAlice);
  EXPECT_EQ(staging_->stats().arena_bytes, 16 * kSlab);
  EXPECT_TRUE(staging_->find_cached(kBob, kStep5, 8, 0, 100).has_value()) << "that of others too";
}

// Regression: 64 MiB of a free 1 GiB were refused.
TEST_F(StagingTest, DefaultSlabSizeFitsTheArena) {
  Staging staging(disk_, *executor_,
                  {.arena_bytes_total = 64 * kSlab, .session_bytes_default = 16 * kSlab});
  const auto granted = staging.create(kAlice, 16 * kSlab, 0);
  ASSERT_TRUE(granted.ok()) << granted.error().message;
  EXPECT_GE(granted->layout.slab_count, 8u);
  EXPECT_EQ(granted->layout.arena_bytes(), 16 * kSlab);
  EXPECT_EQ(choose_slab_bytes(2ull << 30), ckpt::kSlabBytesDefault);
  EXPECT_EQ(choose_slab_bytes(1ull << 30), 32ull << 20);
  EXPECT_EQ(choose_slab_bytes(600ull << 20), 16ull << 20) << "whole slabs, 592 of 600 MiB";
  EXPECT_EQ(choose_slab_bytes(64ull << 20), 2ull << 20);
  EXPECT_EQ(choose_slab_bytes(0), ckpt::kSlabBytesMin);
  const auto refused = staging.create(kAlice, 16 * kSlab, 16 * kSlab);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << "no waiting changes it";
  EXPECT_THAT(refused.error().message,
              HasSubstr("an arena of 1.0 MiB does not hold two slabs of 1.0 MiB, the least for a "
                        "session: ask for an arena of 2.0 MiB"));
  // Asked for more than ckptd has for all: nothing that the session could ask for helps.
  EXPECT_THAT(check_two_slabs(kSlab, kSlab, /*total_bytes_max=*/kSlab).error().message,
              HasSubstr("start ckptd with an --arena of 128.0 KiB or more for each session"));
  run_all(disk_, *executor_);
  staging.close();
}

TEST_F(StagingTest, QuotaBoundsNewAndAdoptedArenas) {
  Staging staging(disk_, *executor_,
                  {.arena_bytes_total = 16 * kSlab,
                   .session_bytes_default = 4 * kSlab,
                   .session_bytes_max = 4 * kSlab});
  EXPECT_TRUE(staging.create(kAlice, 4 * kSlab, kSlab).ok());
  const auto refused = staging.create(kAlice, 5 * kSlab, kSlab);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << "waiting does not help";
  EXPECT_EQ(refused.error().detail, ckpt::ErrorDetail::kNoArenaRoom);
  EXPECT_THAT(refused.error().message, HasSubstr("320.0 KiB was asked for, and a session may have "
                                                 "256.0 KiB at most"));
  EXPECT_THAT(refused.error().message, HasSubstr("a larger --session-arena-max"));
  auto created =
      ckpt::ArenaMapping::create(ckpt::ArenaLayout{.slab_bytes = kSlab, .slab_count = 5}).value();
  const auto back = staging.adopt(kAlice, std::move(created.fd), 5 * kSlab, kSlab);
  ASSERT_FALSE(back.ok());
  EXPECT_THAT(back.error().message, HasSubstr("a session may have 256.0 KiB"));
  staging.close();
}

}  // namespace
}  // namespace ckptd
