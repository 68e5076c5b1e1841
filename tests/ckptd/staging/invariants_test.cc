// Each invariant of staging, broken once by its caller. See docs/internals/invariants.md.
#include "tests/ckptd/staging/staging_fixture.h"

namespace ckptd {
namespace {

TEST_F(StagingTest, ASlabReturnedWithoutLeaseAborts) {
  SmallTrainer trainer = open(kAlice);
  EXPECT_DEATH(staging_->unlease(trainer.arena, kFirst), "record.state == from");
}

TEST_F(StagingTest, ARestoreSlabReturnedTwiceAborts) {
  SmallTrainer trainer = open(kAlice);
  const auto slab = staging_->take_restore_slab(trainer.arena);
  ASSERT_TRUE(slab.has_value());
  staging_->release_restore_slab(trainer.arena, *slab);
  EXPECT_DEATH(staging_->release_restore_slab(trainer.arena, *slab), "record.state == from");
}

TEST_F(StagingTest, AWindowInASlabOfSnapshotsAborts) {
  SmallTrainer trainer = open(kAlice);
  EXPECT_DEATH((void)staging_->slab_bytes(trainer.arena, kFirst), "reserved");
}

TEST_F(StagingTest, ALeaseForADeadSessionAborts) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_EQ(staging_->lease(trainer.arena, 1).size(), 1u);
  const StagedSlab staged = seal(trainer, kFirst, 0);  // keeps the arena after its session
  staging_->session_ended(trainer.arena);
  EXPECT_DEATH((void)staging_->lease(trainer.arena, 1), "arena of a dead session");
}

TEST_F(StagingTest, ADurableSlabThatWasNeverWrittenAborts) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_EQ(staging_->lease(trainer.arena, 1).size(), 1u);
  StagedSlab staged = seal(trainer, kFirst, 0);
  EXPECT_DEATH(staged.mark_durable(kStep5), "record.state == SlabState::kWriting");
}

TEST_F(StagingTest, StagingThatIsNotClosedAborts) {
  SmallTrainer trainer = open(kAlice);
  EXPECT_DEATH(staging_.reset(), "destroyed before close");
}

TEST_F(StagingTest, CloseWithASlabInUseAborts) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_EQ(staging_->lease(trainer.arena, 1).size(), 1u);
  const StagedSlab staged = seal(trainer, kFirst, 0);
  EXPECT_DEATH(staging_->close(), "closed while a slab was held");
}

}  // namespace
}  // namespace ckptd
