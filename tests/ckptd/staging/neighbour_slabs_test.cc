// A hostile client exchanges pages of a sealed slab, and makes one huge page of them and of pages
// of a neighbouring slab. What ckptd does with the neighbour must not hide the exchange.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "ckptd/io/memory_disk.h"
#include "ckptd/staging/arena_quota.h"
#include "ckptd/staging/staging.h"
#include "tests/ckptd/staging/small_trainer.h"

namespace ckptd {
namespace {

using ckpt::kHugePageBytes;

class NeighbourSlabsTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  ~NeighbourSlabsTest() override { staging_.close(); }

  Staging::Granted create(uint64_t slab_bytes, uint32_t slabs) {
    return staging_.create(1000, slabs * slab_bytes, slab_bytes).value();
  }
  StagedSlab seal(SmallTrainer& trainer, uint32_t slab) {
    const auto filled = trainer.fill(slab, {{slab, trainer.layout.slab_bytes}}, slab);
    return staging_.seal(trainer.arena, slab, filled.payload_bytes, filled.fragments).value();
  }
  // New pages with equal bytes for 2 MiB of the arena, as one huge page where the kernel can.
  void exchange(SmallTrainer& trainer, uint64_t huge_page) {
    const uint64_t offset = huge_page * kHugePageBytes;
    std::byte* const at = trainer.slab(0).data() + offset;
    const std::vector<std::byte> kept(at, at + kHugePageBytes);
    ASSERT_EQ(::fallocate(trainer.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off_t>(offset), static_cast<off_t>(kHugePageBytes)),
              0);
    std::memcpy(at, kept.data(), kept.size());
    (void)::madvise(at, kHugePageBytes, 25 /* MADV_COLLAPSE */);
  }

  MemoryDisk disk_{{.seed = 1}};
  std::unique_ptr<Executor> executor_ = make_inline_executor();
  Staging staging_{disk_, *executor_, {.arena_bytes_total = 1ull << 30, .restore_slabs = 2}};
};

TEST_F(NeighbourSlabsTest, RestoreBesideItHidesNoExchange) {
  SmallTrainer trainer(create(kMiB / 2, 16));
  run_all(disk_, *executor_);
  ASSERT_EQ(staging_.lease(trainer.arena, 2), (std::vector<uint32_t>{2, 3}));
  const StagedSlab sealed = seal(trainer, 2);
  exchange(trainer, 0);
  const uint32_t window = staging_.take_restore_slab(trainer.arena).value();
  const MutableByteView bytes = staging_.slab_bytes(trainer.arena, window);
  std::memset(bytes.data(), 1, bytes.size());
  staging_.release_restore_slab(trainer.arena, window);
  EXPECT_FALSE(check_payload(sealed).ok());
}

TEST_F(NeighbourSlabsTest, SealBesideItHidesNoExchange) {
  SmallTrainer trainer(create(kMiB / 2, 16));
  run_all(disk_, *executor_);
  ASSERT_EQ(staging_.lease(trainer.arena, 4), (std::vector<uint32_t>{2, 3, 4, 5}));
  const StagedSlab sealed = seal(trainer, 4);
  exchange(trainer, 1);
  ASSERT_FALSE(check_payload(sealed).ok());
  const StagedSlab beside = seal(trainer, 5);
  EXPECT_FALSE(beside.buffer().has_value()) << "of an arena that is no longer trusted";
  EXPECT_FALSE(check_payload(sealed).ok());
}

TEST_F(NeighbourSlabsTest, WarmingBesideItHidesNoExchange) {
  SmallTrainer trainer(create(3 * kMiB, 40));
  executor_->wait();
  executor_->reap();  // the first chunk, of 21 slabs, is warm
  ASSERT_EQ(staging_.lease(trainer.arena, 40).size(), 19u);
  const StagedSlab sealed = seal(trainer, 20);
  exchange(trainer, 31);  // the last MiB of that slab, and one of the next
  run_all(disk_, *executor_);
  EXPECT_FALSE(check_payload(sealed).ok());
}

TEST_F(NeighbourSlabsTest, SmallSlabsOfAllArenasAreLimited) {
  constexpr uint64_t kSmall = 64 << 10;
  constexpr uint64_t kMost = kSeparateSlabsMax * kSmall;
  Staging staging(disk_, *executor_, {.arena_bytes_total = 4 * kMost, .restore_slabs = 2});
  ASSERT_TRUE(staging.create(1000, kMost - 4 * kSmall, kSmall).ok());
  const auto refused = staging.create(1000, 5 * kSmall, kSmall);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "an arena of 5 slabs of 64.0 KiB: all sessions together may have 16384 slabs whose "
            "size is no multiple of 2.0 MiB, and 16380 exist: ask for larger slabs (slab_bytes; 0 "
            "lets ckptd choose)");
  EXPECT_TRUE(staging.create(1000, 4 * kSmall, kSmall).ok());
  EXPECT_TRUE(staging.create(1000, 64 * kMiB, 2 * kMiB).ok());
  staging.close();
}

}  // namespace
}  // namespace ckptd
