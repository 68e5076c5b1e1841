// Choice of a group's collectives: every rank derives the same choice from the GPUs of all ranks.
#include "trainer/comm/device_collectives.h"

#include <gtest/gtest.h>

#include <bit>
#include <mutex>
#include <set>
#include <vector>

#include "tests/trainer/comm/comm_groups.h"

namespace moetrain {
namespace {

constexpr int64_t kNone = std::bit_cast<int64_t>(kNoGpuForNccl);
constexpr int64_t kLargest = std::bit_cast<int64_t>(~uint64_t{0});

TEST(DeviceCollectivesTest, DistinctGpusSelectNccl) {
  EXPECT_EQ(choose_collectives(std::vector<int64_t>{7, 8, 9, kLargest}),
            DeviceCollectives{.nccl = true});
}

TEST(DeviceCollectivesTest, GroupWithoutPeersReportsNoReason) {
  EXPECT_EQ(choose_collectives(std::vector<int64_t>{7}), DeviceCollectives{});
  EXPECT_EQ(choose_collectives(std::vector<int64_t>{kNone}), DeviceCollectives{});
  EXPECT_EQ(choose_collectives({}), DeviceCollectives{});
}

TEST(DeviceCollectivesTest, SharedGpuDisablesNcclAndFirstRankReports) {
  const DeviceCollectives chosen = choose_collectives(std::vector<int64_t>{5, 7, 8, 7, 8});
  EXPECT_FALSE(chosen.nccl);
  EXPECT_EQ(chosen.reason, "ranks 1 and 3 have the same GPU");
  EXPECT_EQ(chosen.reporting_rank, 1u);
}

// A missing GPU takes precedence over a shared one: only the rank without a GPU knows the cause.
TEST(DeviceCollectivesTest, RankWithoutGpuDisablesNcclAndReports) {
  const DeviceCollectives chosen = choose_collectives(std::vector<int64_t>{7, 7, kNone, kNone});
  EXPECT_FALSE(chosen.nccl);
  EXPECT_EQ(chosen.reason, "rank 2 has no GPU that NCCL can use");
  EXPECT_EQ(chosen.reporting_rank, 2u);
}

TEST(DeviceCollectivesTest, GpuIdentityDependsOnHostAndBusId) {
  const std::set<uint64_t> different = {
      gpu_identity("a", "0000:01:00.0"), gpu_identity("a", "0000:02:00.0"),
      gpu_identity("b", "0000:01:00.0"), gpu_identity("a0", "000:01:00.0"),
      gpu_identity("", "0000:01:00.0"),  gpu_identity("a", "")};
  EXPECT_EQ(different.size(), 6u);
  EXPECT_FALSE(different.contains(kNoGpuForNccl));
  EXPECT_EQ(gpu_identity("a", "0000:01:00.0"), gpu_identity("a", "0000:01:00.0"));
}

TEST(DeviceCollectivesTest, AllRanksAgreeOnCollectives) {
  for (const std::vector<uint64_t>& gpus :
       {std::vector<uint64_t>{3, ~uint64_t{0}, 5}, {3, 5, 3}, {3, kNoGpuForNccl, 5}}) {
    auto comms = make_comms(CommKind::kGloo, 3, /*timeout_ms=*/20'000);
    std::vector<int64_t> said;
    for (const uint64_t gpu : gpus) said.push_back(std::bit_cast<int64_t>(gpu));
    std::mutex mutex;
    size_t agreed = 0;
    on_all_ranks(comms, [&](Comm& comm) {
      const auto chosen = agree_on_collectives(comm, gpus[comm.rank()]);
      ASSERT_TRUE(chosen.ok()) << chosen.error().message;
      EXPECT_EQ(*chosen, choose_collectives(said));
      const std::lock_guard lock(mutex);
      ++agreed;
    });
    EXPECT_EQ(agreed, 3u);
  }
}

}  // namespace
}  // namespace moetrain
