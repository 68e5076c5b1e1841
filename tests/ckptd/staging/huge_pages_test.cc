// make_huge_pages() on real shared memory. /proc/self/smaps tells how much of a mapping has huge
// pages.
#include "ckptd/io/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "ckptd/io/memory_disk.h"
#include "ckptd/staging/page_guard.h"
#include "ckptd/staging/staging.h"
#include "ckptd/staging/warm_pool.h"
#include "formats/arena.h"
#include "tests/ckptd/staging/small_trainer.h"

namespace ckptd {
namespace {

using ckpt::ArenaLayout;
using ckpt::ArenaMapping;
using ckpt::kHugePageBytes;
using ckpt::MutableByteView;

// Bytes of the mapping at that address that are mapped by huge pages, as smaps tells.
uint64_t mapped_huge(const std::byte* at) {
  const auto wanted = reinterpret_cast<uintptr_t>(at);
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    const char* const last = line.data() + line.size();
    const auto first = std::from_chars(line.data(), last, begin, 16);
    if (first.ec == std::errc() && first.ptr != last && *first.ptr == '-') {
      std::from_chars(first.ptr + 1, last, end, 16);
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("ShmemPmdMapped:")) {
      return std::stoull(line.substr(line.find(':') + 1)) * 1024;
    }
  }
  return 0;
}

// True if this kernel makes huge pages of shared memory, tried without the code under test.
bool kernel_has_huge_pages() {
  utsname name{};
  unsigned major = 0;
  unsigned minor = 0;
  if (::uname(&name) != 0) return false;
  const char* const last = name.release + std::strlen(name.release);
  const char* const dot = std::from_chars(name.release, last, major).ptr;
  if (dot != last) std::from_chars(dot + 1, last, minor);
  if (std::pair(major, minor) < std::pair(6u, 12u)) return false;
  auto created = ArenaMapping::create({.slab_bytes = kHugePageBytes, .slab_count = 16}).value();
  const MutableByteView bytes = created.mapping.bytes();
  std::memset(bytes.data(), 1, bytes.size());
  return ::madvise(bytes.data(), bytes.size(), 25 /* MADV_COLLAPSE */) == 0;
}

class HugePagesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernel_has_huge_pages()) GTEST_SKIP() << "this kernel does not collapse shared memory";
    auto created = ArenaMapping::create(layout_).value();
    fd_ = std::move(created.fd);
    guard_ = std::move(created.mapping);
    view_ = ArenaMapping::map(fd_.get(), layout_).value();
  }

  const ArenaLayout layout_{.slab_bytes = kHugePageBytes, .slab_count = 4};
  ckpt::base::UniqueFd fd_;
  ArenaMapping guard_;
  ArenaMapping view_;
};

TEST_F(HugePagesTest, EveryMappingOfAnArenaHasThem) {
  ASSERT_TRUE(populate(guard_.bytes(), view_.bytes()).ok());
  EXPECT_EQ(mapped_huge(guard_.bytes().data()), layout_.arena_bytes());
  EXPECT_EQ(mapped_huge(view_.bytes().data()), layout_.arena_bytes());
  const ArenaMapping client = ArenaMapping::map(fd_.get(), layout_).value();
  ASSERT_TRUE(populate(client.bytes()).ok());
  EXPECT_EQ(mapped_huge(client.bytes().data()), layout_.arena_bytes());
  const MutableByteView bytes = client.bytes();
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(HugePagesTest, PageTableTellsHugePages) {
  std::memset(view_.bytes().data() + kHugePageBytes, 7, 1);
  EXPECT_EQ(huge_bytes(guard_.bytes()), 0u);
  ASSERT_TRUE(populate(guard_.bytes(), view_.bytes()).ok());
  EXPECT_EQ(huge_bytes(guard_.bytes()), layout_.arena_bytes() - kHugePageBytes);
  EXPECT_EQ(huge_bytes(guard_.bytes().subspan(2 * kHugePageBytes)), 2 * kHugePageBytes);
}

// For each huge page that is registered, the kernel walks all small ones.
TEST_F(HugePagesTest, AreNotRegisteredBesideManySmallPages) {
  constexpr uint64_t kSlab = 8ull << 20;
  MemoryDisk disk{{.seed = 1}};
  const auto executor = make_inline_executor();
  Staging staging(disk, *executor,
                  {.arena_bytes_total = 4ull << 30, .restore_slabs = 0, .available_memory = [] {
                     return uint64_t{8} << 30;
                   }});
  const auto is_registered = [&](SmallTrainer& trainer) {
    run_all(disk, *executor);
    EXPECT_EQ(staging.lease(trainer.arena, 1).size(), 1u);
    const auto filled = trainer.fill(0, {{1, 5000}}, 1);
    const auto sealed = staging.seal(trainer.arena, 0, filled.payload_bytes, filled.fragments);
    EXPECT_TRUE(sealed.ok());
    return sealed.ok() && sealed->buffer().has_value();
  };
  {
    SmallTrainer first(staging.create(1000, 2 * kSlab, kSlab).value());
    EXPECT_TRUE(is_registered(first));
    SmallTrainer small(staging.create(1000, 40 * kSlab, kSlab).value());
    std::memset(small.slab(0).data(), 1, 40 * kSlab);  // small pages, before ckptd warms it
    EXPECT_TRUE(is_registered(small));
    SmallTrainer refused(staging.create(1000, 2 * kSlab, kSlab).value());
    EXPECT_FALSE(is_registered(refused));
    staging.session_ended(small.arena);
  }
  SmallTrainer last(staging.create(1000, 2 * kSlab, kSlab).value());
  EXPECT_TRUE(is_registered(last));
  staging.close();
}

TEST_F(HugePagesTest, MemoryWithPagesStaysAsItIs) {
  std::memset(view_.bytes().data() + kHugePageBytes + 5000, 7, 1);
  ASSERT_TRUE(populate(guard_.bytes(), view_.bytes()).ok());
  EXPECT_EQ(mapped_huge(guard_.bytes().data()), layout_.arena_bytes() - kHugePageBytes);
  EXPECT_EQ(guard_.bytes()[kHugePageBytes + 5000], std::byte{7});
  EXPECT_EQ(absent_pages(guard_.bytes()).value(), 0u);
}

TEST_F(HugePagesTest, HoleInAHugePageIsDetected) {
  ASSERT_TRUE(populate(guard_.bytes(), view_.bytes()).ok());
  ASSERT_EQ(mapped_huge(guard_.bytes().data()), layout_.arena_bytes());
  std::memset(view_.bytes().data(), 7, view_.bytes().size());
  ASSERT_EQ(madvise(view_.bytes().data() + 3 * 4096, 4096, MADV_REMOVE), 0);
  EXPECT_GE(absent_pages(guard_.bytes().first(kHugePageBytes)).value(), 1u);
  EXPECT_EQ(absent_pages(guard_.bytes().subspan(kHugePageBytes)).value(), 0u);
  EXPECT_EQ(view_.bytes()[3 * 4096], std::byte{0});
  EXPECT_EQ(view_.bytes()[4 * 4096], std::byte{7});
}

// The pool's piece has another size than the arena: the kernel cuts the last huge page.
TEST_F(HugePagesTest, SmallerArenaOfThePoolKeepsThem) {
  WarmPool pool(4 * kHugePageBytes, 4 * kHugePageBytes);
  ASSERT_TRUE(pool.add().ok());
  const auto fault = pool.next_fault();
  ASSERT_TRUE(fault && populate(fault->guard, fault->view).ok());
  pool.faulted(true);
  const ArenaLayout layout{.slab_bytes = kHugePageBytes / 4, .slab_count = 13};
  const auto memory = pool.take(layout);
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(populate(memory->guard.bytes(), memory->view.bytes()).ok());
  EXPECT_EQ(mapped_huge(memory->guard.bytes().data()), 3 * kHugePageBytes);
  EXPECT_EQ(absent_pages(memory->guard.bytes()).value(), 0u);
  EXPECT_EQ(absent_pages(memory->view.bytes()).value(), 0u);
}

TEST_F(HugePagesTest, LargerArenaOfThePoolHasThemEverywhere) {
  WarmPool pool(4 * kHugePageBytes, 4 * kHugePageBytes);
  ASSERT_TRUE(pool.add().ok());
  const auto fault = pool.next_fault();
  ASSERT_TRUE(fault && populate(fault->guard, fault->view).ok());
  pool.faulted(true);
  const auto memory = pool.take({.slab_bytes = kHugePageBytes, .slab_count = 6});
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(populate(memory->guard.bytes(), memory->view.bytes()).ok());
  EXPECT_EQ(mapped_huge(memory->guard.bytes().data()), 6 * kHugePageBytes);
  EXPECT_EQ(mapped_huge(memory->view.bytes().data()), 6 * kHugePageBytes);
}

}  // namespace
}  // namespace ckptd
