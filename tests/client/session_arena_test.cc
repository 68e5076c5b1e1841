#include "client/src/session_arena.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace ckpt::lib {
namespace {

constexpr ArenaLayout kSmallArena{.slab_bytes = kSlabBytesMin, .slab_count = 4};

// Gives `arena` a new mapping, as a Welcome of the daemon does.
void receive_arena(SessionArena& arena, uint64_t warm_bytes = 0) {
  ArenaMapping::Created created = ArenaMapping::create(kSmallArena).value();
  ArenaMapping mapping = SessionArena::map(created.fd.get(), kSmallArena).value();
  arena.replace(std::move(mapping), std::move(created.fd), warm_bytes);
}

TEST(SessionArena, HasNoMappingBeforeTheFirstWelcome) {
  SessionArena arena;
  EXPECT_EQ(arena.mapping(), nullptr);
  EXPECT_EQ(arena.pin(), nullptr);
  EXPECT_EQ(arena.slabs_warm(), 0u);
  receive_arena(arena);
  ASSERT_NE(arena.mapping(), nullptr);
  EXPECT_GE(arena.fd(), 0);
}

TEST(SessionArena, PinnedMappingOutlivesItsReplacement) {
  SessionArena arena;
  receive_arena(arena);
  const MutableByteView pinned = arena.pin()->slab(1);
  receive_arena(arena);
  EXPECT_NE(arena.mapping()->slab(1).data(), pinned.data());
  pinned[5] = std::byte{42};  // faults if the mapping is gone
  EXPECT_EQ(pinned[5], std::byte{42});
  EXPECT_EQ(arena.mapping()->slab(1)[5], std::byte{0});
}

TEST(SessionArena, CountsWholeWarmSlabs) {
  SessionArena arena;
  receive_arena(arena, 2 * kSlabBytesMin + 100);
  EXPECT_EQ(arena.slabs_warm(), 2u);
  receive_arena(arena, 100 * kSlabBytesMin);
  EXPECT_EQ(arena.slabs_warm(), kSmallArena.slab_count);
}

TEST(SessionArena, SnapshotsHaveTheSlabsThatTheDaemonSays) {
  SessionArena arena;
  EXPECT_EQ(arena.snapshot_slabs(), 0u) << "no arena";
  receive_arena(arena);
  EXPECT_EQ(arena.snapshot_slabs(), 2u) << "an older daemon reserves two of four, and says nothing";
  arena.set_snapshot_slabs(3);
  EXPECT_EQ(arena.snapshot_slabs(), 3u);
  arena.set_snapshot_slabs(99);
  EXPECT_EQ(arena.snapshot_slabs(), kSmallArena.slab_count);
}

TEST(SessionArena, WarmedSlabKeepsItsBytes) {
  SessionArena arena;
  receive_arena(arena);
  arena.mapping()->slab(2)[7] = std::byte{9};
  EXPECT_EQ(arena.warm(2).data(), arena.mapping()->slab(2).data());
  EXPECT_EQ(arena.warm(2)[7], std::byte{9});
}

TEST(SessionArena, SlabIsLentUntilEveryLoanHasEnded) {
  SessionArena arena;
  receive_arena(arena);
  const std::byte* const slab = arena.mapping()->slab(0).data();
  arena.lend(slab);
  arena.lend(slab);
  arena.end_lending(slab);
  EXPECT_TRUE(arena.is_lent(slab));
  arena.end_lending(slab);
  EXPECT_FALSE(arena.is_lent(slab));
  arena.end_lending(slab);
  EXPECT_FALSE(arena.is_lent(slab));
}

TEST(SessionArena, ForgottenMappingStaysMapped) {
  SessionArena arena;
  receive_arena(arena);
  const MutableByteView bytes = arena.mapping()->slab(3);
  arena.forget_in_child();
  EXPECT_EQ(arena.mapping(), nullptr);
  bytes[0] = std::byte{1};  // faults if the arena was unmapped
}

}  // namespace
}  // namespace ckpt::lib
