#include "ckptd/staging/page_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "formats/arena.h"

namespace ckptd {
namespace {

using ckpt::MutableByteView;

constexpr uint64_t kPages = 64;

class PageGuardTest : public testing::TestWithParam<PageTableWay> {
 protected:
  void SetUp() override {
    if (!page_guard_available(GetParam())) GTEST_SKIP() << "this kernel has no such way";
    auto created = ckpt::ArenaMapping::create(layout_).value();
    fd_ = std::move(created.fd);
    guard_ = std::move(created.mapping);
    view_ = ckpt::ArenaMapping::map(fd_.get(), layout_).value();
    ASSERT_TRUE(populate(guard_.bytes()).ok());
    ASSERT_TRUE(populate(view_.bytes()).ok());
  }
  uint64_t absent() { return absent_pages(guard_.bytes(), GetParam()).value(); }

  const ckpt::ArenaLayout layout_{.slab_bytes = kPages * 4096, .slab_count = 1};
  ckpt::base::UniqueFd fd_;
  ckpt::ArenaMapping guard_;
  ckpt::ArenaMapping view_;
};

TEST_P(PageGuardTest, PopulatedPagesArePresentAndKeepTheirBytes) {
  EXPECT_EQ(absent(), 0u);
  view_.bytes()[5000] = std::byte{42};
  ASSERT_TRUE(populate(guard_.bytes()).ok());
  EXPECT_EQ(guard_.bytes()[5000], std::byte{42});
}

TEST_P(PageGuardTest, HoleIsDetectedAfterRefillAndRead) {
  std::memset(view_.bytes().data(), 7, view_.bytes().size());
  ASSERT_EQ(fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * 4096, 2 * 4096),
            0);
  EXPECT_EQ(absent(), 2u);
  // The attacker puts the bytes back, and the daemon reads them through its other mapping.
  std::memset(view_.bytes().data(), 7, view_.bytes().size());
  EXPECT_EQ(view_.bytes()[3 * 4096], std::byte{7});
  EXPECT_EQ(absent(), 2u);
}

TEST_P(PageGuardTest, PairIsPopulatedInBothMappings) {
  auto created = ckpt::ArenaMapping::create(layout_).value();
  const auto view = ckpt::ArenaMapping::map(created.fd.get(), layout_).value();
  ASSERT_TRUE(populate(created.mapping.bytes(), view.bytes()).ok());
  EXPECT_EQ(absent_pages(created.mapping.bytes(), GetParam()).value(), 0u);
  EXPECT_EQ(absent_pages(view.bytes(), GetParam()).value(), 0u);
  const ckpt::base::UniqueFd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  rusage before{};
  rusage after{};
  ASSERT_EQ(getrusage(RUSAGE_THREAD, &before), 0);
  long written = 0;  // by the kernel: a sanitizer's shadow would count its own faults
  for (uint64_t page = 0; page < kPages; ++page) {
    written += ::syscall(SYS_read, zero.get(), view.bytes().data() + page * 4096, 1);
  }
  ASSERT_EQ(getrusage(RUSAGE_THREAD, &after), 0);
  EXPECT_EQ(written, long{kPages});
  EXPECT_LT(after.ru_minflt - before.ru_minflt, long{kPages} / 2) << "writable without a fault";
}

TEST_P(PageGuardTest, PopulateFillsHolesAmongPresentPages) {
  view_.bytes()[5000] = std::byte{42};
  ASSERT_EQ(madvise(view_.bytes().data() + 8 * 4096, 4096, MADV_REMOVE), 0);
  ASSERT_EQ(absent(), 1u);
  ASSERT_TRUE(populate(guard_.bytes()).ok());
  EXPECT_EQ(absent(), 0u);
  EXPECT_EQ(guard_.bytes()[5000], std::byte{42});
}

TEST_P(PageGuardTest, RemovedPagesAreDetected) {
  ASSERT_EQ(madvise(view_.bytes().data() + 8 * 4096, 4096, MADV_REMOVE), 0);
  EXPECT_EQ(absent(), 1u);
}

TEST_P(PageGuardTest, CountsRangeLongerThanOneScan) {
  const ckpt::ArenaLayout large{.slab_bytes = 40ull << 20, .slab_count = 1};
  auto created = ckpt::ArenaMapping::create(large).value();
  const MutableByteView bytes = created.mapping.bytes();
  EXPECT_EQ(absent_pages(bytes, GetParam()).value(), (40u << 20) / 4096);
  ASSERT_TRUE(populate(bytes.subspan(0, 32u << 20)).ok());
  EXPECT_EQ(absent_pages(bytes, GetParam()).value(), (8u << 20) / 4096);
}

TEST_P(PageGuardTest, CountsManySeparateHoles) {
  for (uint64_t page = 0; page < kPages; page += 2) {
    ASSERT_EQ(madvise(view_.bytes().data() + page * 4096, 4096, MADV_REMOVE), 0);
  }
  EXPECT_EQ(absent(), kPages / 2);
}

TEST_P(PageGuardTest, IgnoresPagesOutsideTheRange) {
  ASSERT_EQ(madvise(view_.bytes().data() + 8 * 4096, 4096, MADV_REMOVE), 0);
  EXPECT_EQ(absent_pages(guard_.bytes().subspan(0, 8 * 4096), GetParam()).value(), 0u);
  EXPECT_EQ(absent_pages(guard_.bytes().subspan(7 * 4096, 4096 + 1), GetParam()).value(), 1u);
  EXPECT_EQ(absent_pages(guard_.bytes().subspan(9 * 4096), GetParam()).value(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, PageGuardTest,
                         testing::Values(PageTableWay::kScan, PageTableWay::kEntries),
                         [](const auto& test) {
                           return test.param == PageTableWay::kScan ? "scan" : "entries";
                         });

}  // namespace
}  // namespace ckptd
