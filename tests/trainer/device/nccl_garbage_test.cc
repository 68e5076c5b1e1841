// NCCL fails after a collective was queued: the collective completes with garbage, and no rank is
// lost. The host's collective at the end of the step must then fail on every rank.
#include <gmock/gmock.h>

#include <array>
#include <latch>

#include "tests/trainer/device/nccl_fixture.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

using NcclGarbageTest = NcclFixture;

// A minimal step: a sum on the devices, its result read by each rank, and the final barrier.
TEST_F(NcclGarbageTest, NcclErrorOnOneRankFailsBarrierEverywhere) {
  constexpr uint32_t kRanks = 3;
  constexpr uint32_t kFails = 1;
  std::latch summed(kRanks);
  on_ranks({.ranks = kRanks}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    Tensor tensor(device, Type::kFloat, 2);
    tensor.write(std::span<const float>(std::array<float, 2>{1, 2}));
    const Status queued = (*comm)->all_reduce_sum(tensor);
    EXPECT_TRUE(queued.ok()) << queued.error().message;
    EXPECT_TRUE(tensor.read<float>().ok()) << "nothing tells that it is garbage";
    if ((*comm)->rank() == kFails) {
      nccl_.async_error_of = kFails;
      nccl_.async_error = ncclRemoteError;
    }
    summed.arrive_and_wait();
    const Status ended = (*comm)->barrier();
    ASSERT_FALSE(ended.ok());
    if ((*comm)->rank() == kFails) {
      EXPECT_EQ(ended.error().code, ErrorCode::kUnavailable);
      EXPECT_THAT(ended.error().message, HasSubstr("rank 1 after a collective: NCCL: remote"));
    } else {
      EXPECT_EQ(ended.error().code, ErrorCode::kAborted) << ended.error().message;
    }
    const Status later = (*comm)->barrier();
    ASSERT_FALSE(later.ok());
    EXPECT_EQ(later.error().code, ErrorCode::kAborted) << later.error().message;
  });
  EXPECT_EQ(nccl_.aborts, 3);
}

TEST_F(NcclGarbageTest, HostCollectivesCheckNcclErrorFirst) {
  std::array<float, 1> floats{};
  std::array<double, 1> doubles{};
  std::array<int64_t, 1> integers{};
  std::array<int64_t, 1> received{};
  std::array<std::byte, 1> bytes{};
  const std::array<int64_t, 1> one{1};
  const std::vector<std::function<Status(Comm&)>> collectives = {
      [&](Comm& comm) { return comm.all_reduce_sum(std::span(floats)); },
      [&](Comm& comm) { return comm.all_reduce_sum(std::span(doubles)); },
      [&](Comm& comm) { return comm.all_reduce_sum(std::span(integers)); },
      [&](Comm& comm) { return comm.all_reduce_max(std::span(integers)); },
      [&](Comm& comm) { return comm.all_gather(integers, received); },
      [&](Comm& comm) { return comm.broadcast(std::span(floats), 0); },
      [&](Comm& comm) { return comm.broadcast(std::span(integers), 0); },
      [&](Comm& comm) {
        return comm.all_to_all_v(std::span<const float>(floats), one, std::span(floats), one);
      },
      [&](Comm& comm) {
        return comm.all_to_all_v(std::span<const int64_t>(integers), one, std::span(received), one);
      },
      [&](Comm& comm) {
        return comm.all_to_all_v(std::span<const std::byte>(bytes), one, std::span(bytes), one);
      },
      [](Comm& comm) { return comm.barrier(); },
  };
  for (size_t i = 0; i < collectives.size(); ++i) {
    SCOPED_TRACE(i);
    on_ranks({}, [&](Made& comm, Device&) {
      ASSERT_TRUE(comm.ok()) << comm.error().message;
      EXPECT_TRUE(collectives[i](**comm).ok());
      nccl_.async_error = ncclSystemError;
      const Status failed = collectives[i](**comm);
      nccl_.async_error = ncclSuccess;
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable) << failed.error().message;
    });
  }
}

}  // namespace
}  // namespace moetrain
