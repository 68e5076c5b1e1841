// Slab states, leases and the memory level.
#include "ckptd/staging/staging.h"

#include <gmock/gmock.h>

#include "ckptd/io/memory_disk.h"
#include "tests/ckptd/staging/staging_fixture.h"

namespace ckptd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(StagingTest, SlabsAreLeasableOnceTheyAreWarm) {
  auto granted = staging_->create(kAlice, 8 * kSlab, kSlab).value();
  EXPECT_EQ(granted.layout.slab_count, 8u);
  EXPECT_THAT(staging_->lease(granted.arena, 1), IsEmpty()) << "not faulted in yet";
  EXPECT_EQ(staging_->preparing(granted.arena), 6u);
  std::vector<ArenaId> ready;
  staging_->set_on_slabs_ready([&ready](ArenaId arena) { ready.push_back(arena); });
  run_all(disk_, *executor_);
  EXPECT_THAT(ready, ElementsAre(granted.arena));
  EXPECT_EQ(staging_->leasable(granted.arena), 6u + staging_->preparing(granted.arena));
  EXPECT_THAT(staging_->lease(granted.arena, 4), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(staging_->lease(granted.arena, 4), ElementsAre(6, 7)) << "two are for restores";
  EXPECT_THAT(staging_->lease(granted.arena, 1), IsEmpty());
  staging_->unlease(granted.arena, 3);
  EXPECT_THAT(staging_->lease(granted.arena, 1), ElementsAre(3));
}

TEST_F(StagingTest, DroppingSealedSlabFreesSlab) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_THAT(staging_->lease(trainer.arena, 1), ElementsAre(kFirst));
  {
    StagedSlab staged = seal(trainer, kFirst, 7);
    EXPECT_EQ(count(SlabState::kSealed), 1u);
    EXPECT_EQ(staged.payload().size(), 8192u) << "padded to whole blocks";
    EXPECT_TRUE(staged.buffer().has_value());
    EXPECT_TRUE(check_payload(staged).ok());
    StagedSlab moved = std::move(staged);
    EXPECT_FALSE(staged);  // NOLINT(bugprone-use-after-move)
    moved.mark_writing();
    EXPECT_EQ(count(SlabState::kWriting), 1u);
  }
  EXPECT_EQ(count(SlabState::kFree), 8u) << "dropping it frees the slab";
}

TEST_F(StagingTest, RefusesInvalidSeals) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_THAT(staging_->lease(trainer.arena, 1), ElementsAre(kFirst));
  auto refused = [&](uint32_t slab, uint64_t payload, std::vector<ckpt::ExtentFragment> fragments,
                     const char* reason) {
    auto staged = staging_->seal(trainer.arena, slab, payload, std::move(fragments));
    ASSERT_FALSE(staged.ok()) << reason;
    EXPECT_THAT(staged.error().message, HasSubstr(reason));
  };
  const ckpt::ExtentFragment good{.unit = 3, .length = 100};
  ckpt::ExtentFragment overlapping = good;
  overlapping.payload_offset = 99;
  ckpt::ExtentFragment outside = good;
  outside.payload_offset = 50;
  ckpt::ExtentFragment wrapping = good;
  wrapping.payload_offset = ~uint64_t{0} - 10;
  ckpt::ExtentFragment endless = good;
  endless.offset = ~uint64_t{0} - 10;
  ckpt::ExtentFragment coded = good;
  coded.codec = 9;
  refused(99, 100, {good}, "slab 99: the arena has 8");
  refused(3, 100, {good}, "slab 3: it is not leased");
  refused(kFirst, 0, {good}, "payload of 0 bytes");
  refused(kFirst, kSlab + 1, {good}, "in a slab of 65536");
  refused(kFirst, 100, {}, "0 fragments");
  refused(kFirst, 199, {good, overlapping}, "overlaps the one before it, which ends at 100");
  refused(kFirst, 100, {outside}, "do not fit the payload of 100");
  refused(kFirst, 100, {wrapping}, "do not fit");
  refused(kFirst, 100, {endless}, "do not fit");
  refused(kFirst, 100, {ckpt::ExtentFragment{.unit = 3}}, "0 bytes at payload offset 0");
  refused(kFirst, 100, {coded}, "no such codec: 9");
  EXPECT_EQ(count(SlabState::kLeased), 1u) << "a refused seal changes nothing";
}

TEST_F(StagingTest, LargeFragmentsMustStartAtABlock) {
  staging_->close();
  staging_ = make(64 * kSlab);
  auto granted = staging_->create(kAlice, 4 << 20, 1 << 20).value();
  run_all(disk_, *executor_);
  const uint32_t slab = staging_->lease(granted.arena, 1).at(0);
  const ckpt::ExtentFragment large{
      .unit = 3, .length = ckpt::kAlignedFragmentBytes, .payload_offset = 100};
  auto staged = staging_->seal(granted.arena, slab, 1 << 20, {large});
  ASSERT_FALSE(staged.ok());
  EXPECT_THAT(staged.error().message, HasSubstr("not at a block"));
}

TEST_F(StagingTest, DurableSlabsAreCachedUntilLeased) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_THAT(staging_->lease(trainer.arena, 6), SizeIs(6));
  make_durable(trainer, kFirst + 2, 20, kStep5);
  make_durable(trainer, kFirst, 10, kStep5);
  make_durable(trainer, kFirst + 1, 10, kStep6);

  auto found = staging_->find_cached(kAlice, kStep5, 10, 100, 200);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(std::ranges::equal(found->bytes, trainer.slab(kFirst).subspan(100, 200)));
  EXPECT_FALSE(staging_->find_cached(kAlice, kStep5, 10, 4900, 200).has_value()) << "beyond it";
  EXPECT_FALSE(staging_->find_cached(kAlice, kStep5, 11, 0, 10).has_value());
  EXPECT_FALSE(staging_->find_cached(kBob, kStep5, 10, 0, 10).has_value()) << "another uid";
  EXPECT_TRUE(staging_->find_cached(kAlice, kStep6, 10, 0, 10).has_value());

  // Oldest first, but not while it is being read.
  found = staging_->find_cached(kAlice, kStep5, 20, 0, 5000);
  EXPECT_THAT(staging_->lease(trainer.arena, 1), ElementsAre(kFirst));
  found.reset();
  EXPECT_THAT(staging_->lease(trainer.arena, 2), ElementsAre(kFirst + 2, kFirst + 1));
  EXPECT_FALSE(staging_->find_cached(kAlice, kStep5, 20, 0, 10).has_value());
}

TEST_F(StagingTest, RemovingARunDropsItsCache) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_THAT(staging_->lease(trainer.arena, 2), SizeIs(2));
  make_durable(trainer, kFirst, 10, kStep5);
  ckpt::SnapshotKey other = kStep5;
  other.run = 2;
  make_durable(trainer, kFirst + 1, 10, other);
  staging_->drop_cached(1);
  EXPECT_FALSE(staging_->find_cached(kAlice, kStep5, 10, 0, 10).has_value());
  EXPECT_TRUE(staging_->find_cached(kAlice, other, 10, 0, 10).has_value());
}

TEST_F(StagingTest, ArenaOutlivesTrainerWhileUsed) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_THAT(staging_->lease(trainer.arena, 3), SizeIs(3));
  make_durable(trainer, kFirst, 10, kStep5);
  StagedSlab sealed = seal(trainer, kFirst + 1, 11);
  staging_->session_ended(trainer.arena);
  EXPECT_EQ(count(SlabState::kLeased), 0u) << "what it was filling is dropped";
  EXPECT_TRUE(check_payload(sealed).ok());
  sealed.mark_writing();
  sealed.mark_durable(kStep5);
  EXPECT_TRUE(staging_->find_cached(kAlice, kStep5, 11, 0, 100).has_value());
  EXPECT_EQ(staging_->stats().arenas, 1u);

  // A new session wants more than is left: the dead arena's cache gives way, and only then.
  SmallTrainer small = open(kBob, 8 * kSlab);
  EXPECT_EQ(staging_->stats().arenas, 2u);
  SmallTrainer next = open(kBob, 8 * kSlab);
  EXPECT_EQ(staging_->stats().arenas, 2u);
  EXPECT_FALSE(staging_->find_cached(kAlice, kStep5, 11, 0, 100).has_value());
}

TEST_F(StagingTest, UnusedArenaEndsWithItsTrainer) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_THAT(staging_->lease(trainer.arena, 3), SizeIs(3));
  staging_->session_ended(trainer.arena);
  EXPECT_EQ(staging_->stats().arenas, 0u);
}

TEST_F(StagingTest, SessionMayEndWhileArenaWarms) {
  auto granted = staging_->create(kAlice, 8 * kSlab, kSlab).value();
  staging_->session_ended(granted.arena);
  run_all(disk_, *executor_);
  EXPECT_EQ(staging_->stats().arenas, 0u);
}

TEST_F(StagingTest, RestoresHaveReservedSlabs) {
  SmallTrainer trainer = open(kAlice);
  ASSERT_THAT(staging_->lease(trainer.arena, 8), SizeIs(6)) << "snapshots took all they can";
  const auto first = staging_->take_restore_slab(trainer.arena);
  const auto second = staging_->take_restore_slab(trainer.arena);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_FALSE(staging_->take_restore_slab(trainer.arena).has_value());
  staging_->slab_bytes(trainer.arena, *first)[17] = std::byte{99};
  EXPECT_EQ(trainer.slab(*first)[17], std::byte{99}) << "the trainer sees what is restored";
  EXPECT_TRUE(staging_->slab_buffer(trainer.arena, *first).has_value());
  staging_->release_restore_slab(trainer.arena, *first);
  EXPECT_EQ(staging_->take_restore_slab(trainer.arena), first);
  staging_->release_restore_slab(trainer.arena, *first);
  staging_->session_ended(trainer.arena);
  EXPECT_EQ(staging_->stats().arenas, 1u) << "a restore still holds a slab";
  staging_->release_restore_slab(trainer.arena, *second);
  EXPECT_EQ(staging_->stats().arenas, 0u);
}

TEST_F(StagingTest, RestoresStartBeforeLargeArenaIsWarm) {
  constexpr uint64_t kLargeSlab = 8 << 20;  // eight to a chunk, which is faulted in as one
  staging_->close();
  staging_ = make(16 * kLargeSlab);
  const auto granted = staging_->create(kAlice, 16 * kLargeSlab, kLargeSlab).value();
  std::vector<size_t> leased;
  std::vector<std::optional<uint32_t>> taken;
  staging_->set_on_slabs_ready([&](ArenaId arena) {
    leased.push_back(staging_->lease(arena, 16).size());
    if (taken.size() < 2) taken.push_back(staging_->take_restore_slab(arena));
    if (taken.size() < 2) taken.push_back(staging_->take_restore_slab(arena));
  });
  run_all(disk_, *executor_);
  EXPECT_THAT(leased, ElementsAre(6, 8)) << "one chunk was warm, then the other";
  EXPECT_THAT(taken, ElementsAre(0, 1)) << "with the first one";
  staging_->set_on_slabs_ready({});
  for (const uint32_t slab : {0, 1}) staging_->release_restore_slab(granted.arena, slab);
}

TEST_F(StagingTest, ArenaIsAdoptedAfterRestart) {
  const ckpt::ArenaLayout layout{.slab_bytes = kSlab, .slab_count = 8};
  auto created = ckpt::ArenaMapping::create(layout).value();
  const int dup_fd = ::dup(created.fd.get());
  auto adopted = staging_->adopt(kAlice, std::move(created.fd), layout.arena_bytes(), kSlab);
  ASSERT_TRUE(adopted.ok()) << adopted.error().message;
  SmallTrainer trainer(*adopted);
  EXPECT_EQ(count(SlabState::kLeased), 6u) << "no snapshot can be in what is reserved for restores";
  // A slab that was sealed to the old daemon comes again, before anything is faulted in here.
  StagedSlab sealed = seal(trainer, kFirst, 7);
  EXPECT_TRUE(check_payload(sealed).ok());
  EXPECT_TRUE(staging_->claim_leased(trainer.arena, 3).ok());
  EXPECT_FALSE(staging_->claim_leased(trainer.arena, 3).ok()) << "another snapshot has it";
  EXPECT_FALSE(staging_->claim_leased(trainer.arena, kFirst).ok()) << "it is sealed";
  EXPECT_FALSE(staging_->claim_leased(trainer.arena, 1).ok()) << "it is reserved";
  EXPECT_FALSE(staging_->claim_leased(trainer.arena, 8).ok());
  staging_->free_unclaimed(trainer.arena);
  EXPECT_EQ(count(SlabState::kLeased), 1u);
  EXPECT_EQ(count(SlabState::kSealed), 1u);
  run_all(disk_, *executor_);
  EXPECT_THAT(staging_->lease(trainer.arena, 8), ElementsAre(4, 5, 6, 7));

  auto twice = staging_->adopt(kAlice, ckpt::base::UniqueFd(dup_fd), 3 * kSlab, kSlab);
  EXPECT_FALSE(twice.ok()) << "the size does not match the memfd";
  auto odd = staging_->adopt(kAlice, {}, kSlab + 1, kSlab);
  EXPECT_FALSE(odd.ok());
}

TEST_F(StagingTest, UsesPlainIoIfRegistrationIsRefused) {
  MemoryDisk refusing({.seed = 2, .allow_buffers = false});
  Staging staging(refusing, *executor_,
                  {.arena_bytes_total = 8 * kSlab, .session_bytes_default = 8 * kSlab});
  auto granted = staging.create(kAlice, 0, kSlab).value();
  run_all(refusing, *executor_);
  SmallTrainer trainer(granted);
  ASSERT_THAT(staging.lease(granted.arena, 1), ElementsAre(kFirst));
  const auto filled = trainer.fill(kFirst, {{1, 3000}}, 1);
  {
    auto staged = staging.seal(granted.arena, kFirst, filled.payload_bytes, filled.fragments);
    ASSERT_TRUE(staged.ok());
    EXPECT_FALSE(staged->buffer().has_value());
    EXPECT_TRUE(
        std::ranges::equal(staged->payload().first(3000), trainer.slab(kFirst).first(3000)));
  }
  EXPECT_FALSE(staging.stats().zero_copy);
  staging.close();
}

}  // namespace
}  // namespace ckptd
