#include "formats/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <utility>
#include <vector>

namespace ckpt {
namespace {

using ::testing::HasSubstr;

constexpr ArenaLayout kLayout{.slab_bytes = kSlabBytesMin, .slab_count = 4};

// A memfd of that size with exactly those seals.
base::UniqueFd memfd(uint64_t bytes, int seals) {
  base::UniqueFd fd(::memfd_create("arena-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_TRUE(fd.valid());
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

TEST(ArenaLayout, IsBounded) {
  EXPECT_TRUE(validate(kLayout).ok());
  EXPECT_TRUE(validate(ArenaLayout{.slab_bytes = kSlabBytesMax, .slab_count = ~0u}).ok());
  EXPECT_FALSE(validate(ArenaLayout{.slab_bytes = kSlabBytesMin, .slab_count = 0}).ok());
  EXPECT_FALSE(validate(ArenaLayout{.slab_bytes = 0, .slab_count = 1}).ok());
  EXPECT_FALSE(validate(ArenaLayout{.slab_bytes = kSlabBytesMin + 512, .slab_count = 1}).ok());
  EXPECT_FALSE(validate(ArenaLayout{.slab_bytes = 2 * kSlabBytesMax, .slab_count = 1}).ok());
}

TEST(Arena, BothSidesSeeTheSameBytes) {
  ArenaMapping::Created ours = ArenaMapping::create(kLayout).value();
  const ArenaMapping theirs = ArenaMapping::map(ours.fd.get(), kLayout).value();
  ASSERT_EQ(theirs.bytes().size(), kLayout.arena_bytes());
  theirs.slab(2)[5] = std::byte{42};
  EXPECT_EQ(ours.mapping.bytes()[2 * kSlabBytesMin + 5], std::byte{42});
  EXPECT_EQ(ours.mapping.slab(3).size(), kSlabBytesMin);
}

// Not by chance: with small pages between them, half of all mappings would lie elsewhere.
TEST(Arena, LargeMappingsAreAlignedForHugePages) {
  const auto is_aligned = [](const ArenaMapping& mapping) {
    return reinterpret_cast<uintptr_t>(mapping.bytes().data()) % kHugePageBytes == 0;
  };
  const ArenaLayout small{.slab_bytes = kHugePageBytes / 2, .slab_count = 3};
  const ArenaLayout large{.slab_bytes = kHugePageBytes / 2, .slab_count = 64};
  std::vector<ArenaMapping> between;
  std::vector<ArenaMapping::Created> arenas;
  for (int i = 0; i < 8; ++i) {
    between.push_back(std::move(ArenaMapping::create(kLayout).value().mapping));
    arenas.push_back(ArenaMapping::create_unsealed(small).value());
    EXPECT_TRUE(is_aligned(arenas.back().mapping));
  }
  for (ArenaMapping::Created& arena : arenas) {
    arena.mapping.slab(1)[7] = std::byte{42};
    ASSERT_TRUE(ArenaMapping::resize_and_seal(arena.fd.get(), large).ok());
    ASSERT_TRUE(arena.mapping.remap(large).ok());
    EXPECT_TRUE(is_aligned(arena.mapping));
    EXPECT_EQ(arena.mapping.bytes()[kHugePageBytes / 2 + 7], std::byte{42});
    arena.mapping.bytes().back() = std::byte{1};
  }
}

TEST(Arena, SealsForbidResizingAndFurtherSeals) {
  const ArenaMapping::Created arena = ArenaMapping::create(kLayout).value();
  EXPECT_NE(::ftruncate(arena.fd.get(), 4096), 0);
  EXPECT_NE(::ftruncate(arena.fd.get(), 1 << 30), 0);
  EXPECT_NE(::fcntl(arena.fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
}

TEST(Arena, MayGetItsSizeLast) {
  for (const uint32_t slabs : {2u, 4u, 9u}) {
    ArenaMapping::Created arena = ArenaMapping::create_unsealed(kLayout).value();
    ArenaMapping view = ArenaMapping::map_unsealed(arena.fd.get(), kLayout).value();
    view.slab(1)[7] = std::byte{42};
    EXPECT_FALSE(ArenaMapping::map(arena.fd.get(), kLayout).ok()) << "it is no arena yet";
    const ArenaLayout layout{.slab_bytes = 2 * kSlabBytesMin, .slab_count = slabs};
    ASSERT_TRUE(ArenaMapping::resize_and_seal(arena.fd.get(), layout).ok());
    ASSERT_TRUE(arena.mapping.remap(layout).ok());
    ASSERT_TRUE(view.remap(layout).ok());
    const ArenaMapping theirs = ArenaMapping::map(arena.fd.get(), layout).value();
    EXPECT_EQ(theirs.slab(0)[kSlabBytesMin + 7], std::byte{42});
    theirs.slab(slabs - 1)[0] = std::byte{43};
    for (const ArenaMapping* ours : {&arena.mapping, &view}) {
      ASSERT_EQ(ours->bytes().size(), layout.arena_bytes());
      EXPECT_EQ(ours->layout().slab_count, slabs);
      EXPECT_EQ(ours->slab(slabs - 1)[0], std::byte{43});
    }
    EXPECT_FALSE(ArenaMapping::resize_and_seal(arena.fd.get(), kLayout).ok()) << "it is sealed";
  }
}

TEST(Arena, OutlivesItsDescriptorAndMoves) {
  ArenaMapping::Created arena = ArenaMapping::create(kLayout).value();
  arena.fd.reset();
  ArenaMapping moved = std::move(arena.mapping);
  moved.slab(0)[0] = std::byte{7};
  ArenaMapping::Created other = ArenaMapping::create(kLayout).value();
  other.mapping = std::move(moved);
  EXPECT_EQ(other.mapping.slab(0)[0], std::byte{7});
  EXPECT_TRUE(moved.bytes().empty());  // NOLINT(bugprone-use-after-move)
}

// A data loader that a trainer forks must not be able to write into the arena.
TEST(Arena, IsUnmappedInForkedChild) {
  const ArenaMapping::Created arena = ArenaMapping::create(kLayout).value();
  const pid_t child = ::fork();
  if (child == 0) {
    // mincore fails with ENOMEM where nothing is mapped.
    unsigned char page = 0;
    const int gone = ::mincore(arena.mapping.bytes().data(), 4096, &page);
    ::_exit(gone != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Arena, RefusesDescriptorsOfOtherFiles) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const uint64_t bytes = kLayout.arena_bytes();
  const auto error = [](const base::UniqueFd& fd) {
    const Result<ArenaMapping> mapping = ArenaMapping::map(fd.get(), kLayout);
    return mapping.ok() ? std::string("none") : mapping.error().message;
  };
  EXPECT_EQ(error(memfd(bytes, kSeals)), "none");
  EXPECT_THAT(error(memfd(bytes - 4096, kSeals)), HasSubstr("expected 262144"));
  EXPECT_THAT(error(memfd(bytes + 1, kSeals)), HasSubstr("262145 bytes"));
  EXPECT_THAT(error(memfd(bytes, 0)), HasSubstr("seals"));
  EXPECT_THAT(error(memfd(bytes, F_SEAL_SHRINK | F_SEAL_SEAL)), HasSubstr("seals"));
  EXPECT_THAT(error(memfd(bytes, F_SEAL_SHRINK | F_SEAL_GROW)), HasSubstr("seals"));
  EXPECT_THAT(error(memfd(bytes, kSeals | F_SEAL_WRITE)), HasSubstr("seals"));
  EXPECT_THAT(error(memfd(bytes, kSeals | F_SEAL_FUTURE_WRITE)), HasSubstr("seals"));

  base::UniqueFd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_NE(error(device), "none");
  int pipes[2];
  ASSERT_EQ(::pipe2(pipes, O_CLOEXEC), 0);
  const base::UniqueFd read_end(pipes[0]);
  const base::UniqueFd write_end(pipes[1]);
  EXPECT_THAT(error(read_end), HasSubstr("not shared memory"));
  EXPECT_NE(error(base::UniqueFd()), "none");
}

TEST(ArenaDeathTest, SlabOutOfRangeAborts) {
  const ArenaMapping::Created arena = ArenaMapping::create(kLayout).value();
  EXPECT_DEATH(arena.mapping.slab(4), "slab < layout_.slab_count");
}

}  // namespace
}  // namespace ckpt
