// Pinning of the arena: part by part, near the device, and no copy across the end of a part.
#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ckpt/client_cuda.hpp>
#include <filesystem>
#include <fstream>

#include "client/src/cuda/arena_pinning.h"
#include "client/src/cuda/numa.h"
#include "client/src/cuda/restorer.h"
#include "client/src/cuda/stager.h"
#include "tests/client/cuda_round_trip.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::test {
namespace {

using lib::ArenaPinning;

constexpr uint64_t kPageBytes = 4096;

class SharedPages {
 public:
  explicit SharedPages(uint64_t pages) : bytes_(pages * kPageBytes) {
    at_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at_, MAP_FAILED);
  }
  ~SharedPages() { (void)::munmap(at_, bytes_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  MutableByteView bytes() const { return {static_cast<std::byte*>(at_), bytes_}; }

 private:
  const uint64_t bytes_;
  void* at_ = nullptr;
};

TEST(NumaTest, ReadsNodeFromPciFolder) {
  const TempFolder folder;
  const auto add = [&](const std::string& address, const std::string& node) {
    std::filesystem::create_directories(folder.path(address));
    std::ofstream(folder.path(address) + "/numa_node") << node;
  };
  add("0000:c1:00.0", "1\n");
  add("0000:02:00.0", "-1\n");
  add("0000:03:00.0", "many\n");
  add("0000:04:00.0", "4096\n");
  EXPECT_EQ(lib::numa_node_of_pci_device("0000:C1:00.0", folder.path("")), 1) << "CUDA's letters";
  for (const char* unknown : {"0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"}) {
    EXPECT_EQ(lib::numa_node_of_pci_device(unknown, folder.path("")), -1) << unknown;
  }
}

TEST(NumaTest, PagesPreferTheNodeTheyAreBoundTo) {
  const SharedPages pages(3);
  if (!lib::prefer_numa_node(pages.bytes(), 0)) {
    GTEST_SKIP() << "skipped: mbind is not allowed here";
  }
  for (uint64_t page = 0; page < 3; ++page) {
    int mode = -1;
    uint64_t nodes[16] = {};
    ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode, nodes, 1024,
                        pages.bytes().data() + page * kPageBytes, MPOL_F_ADDR),
              0);
    EXPECT_EQ(mode, MPOL_PREFERRED);
    EXPECT_EQ(nodes[0], 1u);
  }
  EXPECT_FALSE(lib::prefer_numa_node(pages.bytes(), 1023)) << "no machine has that many";
}

class ArenaPinningTest : public testing::Test {
 protected:
  void TearDown() override { cuda_emulator::fail_no_calls(); }
  static size_t registered() { return cuda_emulator::holdings().registered; }

  const SharedPages pages_{10};
  std::vector<std::pair<uint64_t, uint64_t>> reported_;
  const ArenaPinning::Progress report_ = [this](uint64_t pinned, uint64_t total) {
    reported_.emplace_back(pinned, total);
  };
};

TEST_F(ArenaPinningTest, PartsEndAtSlabsAndReportProgress) {
  {
    const auto pinning = ArenaPinning::pin(
        pages_.bytes(), {.slab_bytes = 2 * kPageBytes, .part_bytes = 5 * kPageBytes}, report_);
    ASSERT_TRUE(pinning.ok()) << pinning.error().message;
    EXPECT_EQ(registered(), 3u) << "two slabs each, and the last";
    const uint64_t all = 10 * kPageBytes;
    EXPECT_THAT(reported_,
                testing::ElementsAre(std::pair(0u, all), std::pair(4 * kPageBytes, all),
                                     std::pair(8 * kPageBytes, all), std::pair(all, all)));
    EXPECT_EQ(pinning->stats().bytes, all);
    for (uint64_t page = 0; page < 12; ++page) {
      EXPECT_EQ(pinning->begins_part(pages_.bytes().data() + page * kPageBytes),
                page == 0 || page == 4 || page == 8)
          << "page " << page;
    }
  }
  EXPECT_EQ(registered(), 0u);
}

TEST_F(ArenaPinningTest, SlabIsNeverSplit) {
  const auto pinning = ArenaPinning::pin(
      pages_.bytes(), {.slab_bytes = 10 * kPageBytes, .part_bytes = kPageBytes}, {});
  ASSERT_TRUE(pinning.ok()) << pinning.error().message;
  EXPECT_EQ(registered(), 1u);
}

TEST_F(ArenaPinningTest, FailureNamesPartAndUnpinsAll) {
  // The first call gets the device's address. Then each part is one call.
  cuda_emulator::fail_calls(1 + 2, 1);
  const auto pinning = ArenaPinning::pin(
      pages_.bytes(), {.slab_bytes = kPageBytes, .part_bytes = 4 * kPageBytes}, report_);
  ASSERT_FALSE(pinning.ok());
  EXPECT_THAT(
      pinning.error().message,
      testing::HasSubstr("pinning the arena: part 3 of 3 (8.0 KiB), 32.0 KiB of 40.0 KiB pinned"));
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(reported_.back().first, 8 * kPageBytes);
}

TEST_F(ArenaPinningTest, AnUnknownNodeIsNoFailure) {
  cuda_emulator::fail_calls(0, 1);
  const auto pinning = ArenaPinning::pin(pages_.bytes(), {}, {});
  ASSERT_TRUE(pinning.ok()) << pinning.error().message;
  EXPECT_EQ(pinning->stats().numa_node, -1);
  EXPECT_FALSE(pinning->stats().is_near);
}

// The stager joins the end of a slab with the beginning of the next one in memory; a part may end
// there. The emulated device refuses copies over that end, as CUDA does.
class PartsTest : public RoundTripTest {
 protected:
  static constexpr uint64_t kSmallSlab = 64 << 10;
  static constexpr uint32_t kTimeoutMs = 5000;
};

TEST_F(PartsTest, CopiesNeverCrossPinnedParts) {
  connect(300'000);
  lib::PinnedArena arena(session_->handle(), {.device = 0, .part_bytes = kSmallSlab});
  {
    const auto stager = lib::Stager::open(
        session_->handle(), arena,
        {.gather_bytes = 512 << 10, .chunk_bytes = 256 << 10, .timeout_ms = kTimeoutMs});
    ASSERT_TRUE(stager.ok()) << stager.error().message;
    EXPECT_EQ(cuda_emulator::holdings().registered, 8u) << "a part for each slab";
    Snapshot snapshot = begin();
    const Status staged = (*stager)->stage(snapshot.handle(), pieces_, trainer_->stream());
    ASSERT_TRUE(staged.ok()) << staged.error().message;
    const Status drained = (*stager)->drain(kTimeoutMs);
    ASSERT_TRUE(drained.ok()) << drained.error().message;
    expect_payload(seals(5));
  }
  const auto buffers = lib::RestoreBuffers::make(0, kTimeoutMs);
  ASSERT_TRUE(buffers.ok()) << buffers.error().message;
  lib::Restorer restorer(session_->handle(), arena, **buffers,
                         {.device = 0, .timeout_ms = kTimeoutMs, .cufile = {}});
  ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
  options.step = 1200;
  std::vector<ckpt_range> ranges;
  for (const auto& to : into_) ranges.push_back({to.unit, to.offset, to.length, nullptr});
  ckpt_restore* windows = nullptr;
  ASSERT_EQ(
      ckpt_restore_begin(session_->handle(), &options, ranges.data(), ranges.size(), &windows),
      CKPT_OK);
  const Status restored = restorer.run(windows, into_, trainer_->stream());
  EXPECT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(ckpt_restore_end(windows, nullptr), CKPT_OK);
  ckpt_restore_free(windows);
  expect_restored();
}

TEST_F(RoundTripTest, OpeningReportsPinningProgress) {
  connect(50'000);
  std::vector<uint64_t> progress;
  client::CudaOptions options;
  options.gather_bytes = gather_bytes_;
  options.chunk_bytes = chunk_bytes_;
  options.pinning = [&](uint64_t pinned, uint64_t total) {
    progress.push_back(pinned);
    progress.push_back(total);
  };
  auto cuda = client::Cuda::open(*session_, options);
  ASSERT_OK(cuda);
  const uint64_t arena_bytes = 8 * (64 << 10);
  EXPECT_THAT(progress, testing::ElementsAre(0, arena_bytes, arena_bytes, arena_bytes));
  const client::CudaPinInfo pinned = cuda->pinned();
  EXPECT_EQ(pinned.bytes, arena_bytes);
  EXPECT_EQ(pinned.on_numa_node, pinned.on_numa_node && pinned.numa_node >= 0);
}

}  // namespace
}  // namespace ckpt::test
