// Collectives on GPU memory: the same tests for every transport.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "tests/trainer/comm/comm_groups.h"
#include "tests/trainer/device/cuda_fixture.h"
#include "trainer/comm/comm_nccl.h"
#include "trainer/comm/device_collectives.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

enum class Way { kLocal, kGloo, kNccl };

constexpr uint32_t kRanksMax = 3;

class CudaCommTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    std::string reason;
    gpus_ = count_cuda_devices(&reason);
    if (gpus_ == 0) GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    // NCCL needs one GPU per rank; with one GPU the group has one rank.
    if (GetParam() != Way::kNccl) return;
    ranks_ = std::min(kRanksMax, static_cast<uint32_t>(gpus_));
    std::printf("nccl: %u ranks, each with a GPU of its own\n", ranks_);
  }

  CommKind host() const { return GetParam() == Way::kLocal ? CommKind::kLocal : CommKind::kGloo; }
  // The transport under test, on top of the host's communicator.
  Result<std::unique_ptr<Comm>> over(std::unique_ptr<Comm> comm, Device& device,
                                     MapRendezvous& rendezvous) const {
    if (GetParam() != Way::kNccl) return comm;
    return make_nccl_comm(std::move(comm),
                          {.device = &device, .rendezvous = rendezvous.callbacks()});
  }
  // Runs `body` on every rank, with its device, in threads.
  void on_ranks(const std::function<void(Comm&, Device&)>& body) {
    auto comms = make_comms(host(), ranks_, /*timeout_ms=*/20'000);
    MapRendezvous rendezvous;  // one per group: an NCCL id serves one group
    std::vector<std::jthread> threads;
    threads.reserve(comms.size());
    for (auto& comm : comms) {
      threads.emplace_back([&] {
        const uint32_t rank = comm->rank();
        auto device = make_cuda_device({.index = static_cast<int>(rank) % gpus_});
        ASSERT_TRUE(device.ok()) << device.error().message;
        auto made = over(std::move(comm), **device, rendezvous);
        ASSERT_TRUE(made.ok()) << made.error().message;
        body(**made, **device);
        made->reset();  // before its device
      });
    }
  }

  int gpus_ = 0;
  uint32_t ranks_ = kRanksMax;
};

std::vector<float> values_of(uint32_t rank, size_t count) {
  std::mt19937 random(rank);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

TEST_P(CudaCommTest, SumsValuesOfAllRanks) {
  for (const size_t count : {size_t{1}, size_t{5000}}) {
    std::vector<double> expected(count);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      const std::vector<float> values = values_of(rank, count);
      for (size_t i = 0; i < count; ++i) expected[i] += static_cast<double>(values[i]);
    }
    std::mutex mutex;
    std::vector<std::vector<float>> sums;
    on_ranks([&](Comm& comm, Device& device) {
      Tensor tensor(device, Type::kFloat, count);
      tensor.write(std::span<const float>(values_of(comm.rank(), count)));
      ASSERT_TRUE(comm.all_reduce_sum(tensor).ok());
      const auto sum = tensor.read<float>();
      ASSERT_TRUE(sum.ok());
      const std::lock_guard lock(mutex);
      sums.push_back(*sum);
    });
    ASSERT_EQ(sums.size(), ranks_);
    for (const auto& sum : sums) EXPECT_EQ(sum, sums[0]) << "not the same bits everywhere";
    for (size_t i = 0; i < count; ++i) EXPECT_NEAR(sums[0][i], expected[i], 1e-6);
  }
}

class CudaHostSumsTest : public CudaCommTest {};
class CudaGpusTest : public CudaCommTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaGpusTest);  // without NCCL

// Sums over peer access or through host memory equal the host's sums bit for bit, for any number of
// values per rank. NCCL promises less.
TEST_P(CudaHostSumsTest, SumsMatchHostBitForBit) {
  on_ranks([&](Comm& comm, Device& device) {
    for (const size_t count : {1, 2, 3, 4, 1000, 5000, 4999}) {
      std::vector<float> expected = values_of(comm.rank(), count);
      expected[0] *= 1e-40f;  // a subnormal number
      Tensor tensor(device, Type::kFloat, count);
      tensor.write(std::span<const float>(expected));
      ASSERT_TRUE(comm.all_reduce_sum(tensor).ok());
      ASSERT_TRUE(comm.all_reduce_sum(std::span<float>(expected)).ok());
      const auto sum = tensor.read<float>();
      ASSERT_TRUE(sum.ok()) << sum.error().message;
      EXPECT_EQ(std::memcmp(sum->data(), expected.data(), tensor.bytes()), 0) << count;
    }
  });
}

// Rank s sends s + 2 r rows to rank r, itself included; rank 0 sends itself rows only if it is
// alone. The device computes the sent rows just before and overwrites them just after.
TEST_P(CudaCommTest, ExchangesUnevenRowCounts) {
  constexpr int64_t kWidth = 100;
  const uint32_t more = ranks_ == 1 ? 5 : 0;  // a group of one would move nothing
  on_ranks([&](Comm& comm, Device& device) {
    const uint32_t me = comm.rank();
    std::vector<int64_t> send_counts;
    std::vector<int64_t> receive_counts;
    std::vector<kernels::Bf16> out;
    std::vector<uint16_t> expected;
    for (uint32_t peer = 0; peer < ranks_; ++peer) {
      send_counts.push_back((more + me + 2 * peer) * kWidth);
      receive_counts.push_back((more + peer + 2 * me) * kWidth);
      for (int64_t i = 0; i < send_counts.back(); ++i) {
        out.push_back({static_cast<uint16_t>(me * 10 + peer)});
      }
      for (int64_t i = 0; i < receive_counts.back(); ++i) {
        expected.push_back(static_cast<uint16_t>(peer * 10 + me));
      }
    }
    Tensor source(device, Type::kBf16, out.size());
    source.write(std::span<const kernels::Bf16>(out));
    Tensor send(device, Type::kBf16, 0);
    Tensor recv(device, Type::kBf16, expected.size());
    recv.zero();
    for (int turn = 0; turn < 2; ++turn) {
      send.copy_from(source);
      ASSERT_TRUE(comm.all_to_all_v(send, send_counts, recv, receive_counts).ok());
      send.zero();
    }
    const auto received = recv.read<kernels::Bf16>();
    ASSERT_TRUE(received.ok()) << received.error().message;
    std::vector<uint16_t> bits;
    for (const kernels::Bf16 value : *received) bits.push_back(value.bits);
    EXPECT_EQ(bits, expected) << "rank " << me;
  });
}

TEST_P(CudaCommTest, AbortFailsCollectivesWithoutHang) {
  on_ranks([&](Comm& comm, Device& device) {
    Tensor tensor(device, Type::kFloat, 100);
    tensor.zero();
    if (comm.rank() == ranks_ - 1) {
      comm.abort("enough");
    } else {
      // The abort ends the sum, whether it comes before, while or after the sum is queued.
      Status status;
      while (status.ok()) {
        status = comm.all_reduce_sum(tensor);
        if (status.ok()) status = comm.barrier();
      }
      EXPECT_EQ(status.error().code, ErrorCode::kAborted) << status.error().message;
    }
    const Status later = comm.all_reduce_sum(tensor);
    ASSERT_FALSE(later.ok());
    EXPECT_THAT(later.error().message, HasSubstr("rank " + std::to_string(comm.rank())));
  });
}

// Membership changes over the same devices: a group follows one that was aborted in the middle of a
// collective, or one that all ranks left in agreement.
TEST_P(CudaCommTest, ConsecutiveGroupsShareDevices) {
  constexpr size_t kGroups = 5;
  std::vector<std::vector<std::unique_ptr<Comm>>> groups;
  std::vector<MapRendezvous> rendezvous(kGroups);
  for (size_t i = 0; i < kGroups; ++i) groups.push_back(make_comms(host(), ranks_, 20'000));
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([&, rank] {
      auto device = make_cuda_device({.index = static_cast<int>(rank) % gpus_});
      ASSERT_TRUE(device.ok()) << device.error().message;
      Tensor tensor(**device, Type::kFloat, 3);
      for (size_t i = 0; i < kGroups; ++i) {
        SCOPED_TRACE(i);
        auto comm = over(std::move(groups[i][rank]), **device, rendezvous[i]);
        ASSERT_TRUE(comm.ok()) << comm.error().message;
        tensor.write(std::span<const float>(std::vector<float>{1, 2, 3}));
        ASSERT_TRUE((*comm)->all_reduce_sum(tensor).ok());
        const auto sum = tensor.read<float>();
        ASSERT_TRUE(sum.ok()) << sum.error().message;
        const auto all = static_cast<float>(ranks_);
        EXPECT_THAT(*sum, testing::ElementsAre(all, 2 * all, 3 * all));
        ASSERT_TRUE((*comm)->barrier().ok());
        if (i % 2 == 1) continue;  // in agreement
        // The last rank does not take part, unless it is the only rank.
        const bool comes = rank + 1 < ranks_ || ranks_ == 1;
        if (comes) (void)(*comm)->all_reduce_sum(tensor);
        (*comm)->abort("a member was lost");
        EXPECT_TRUE((*device)->synchronize().ok()) << "an abort ends what was queued";
      }
    });
  }
}

// The GPU descriptions that ranks exchange tell whether NCCL accepts the group.
TEST_P(CudaGpusTest, HaveDistinctStableIdentities) {
  on_ranks([&](Comm& comm, Device& device) {
    const auto gpu = nccl_gpu(device);
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    const auto own = agree_on_collectives(comm, *gpu);
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_EQ(own->nccl, ranks_ > 1) << own->reason;
    const auto again = make_cuda_device({.index = static_cast<int>(comm.rank()) % gpus_});
    ASSERT_TRUE(again.ok()) << again.error().message;
    const auto same = nccl_gpu(**again);
    ASSERT_TRUE(same.ok()) << same.error().message;
    EXPECT_EQ(*same, *gpu);
  });
}

std::vector<Way> nccl() { return has_nccl() ? std::vector<Way>{Way::kNccl} : std::vector<Way>{}; }
std::vector<Way> ways() {
  std::vector<Way> all{Way::kLocal, Way::kGloo};
  if (has_nccl()) all.push_back(Way::kNccl);
  return all;
}
std::string way_name(const testing::TestParamInfo<Way>& info) {
  return info.param == Way::kLocal ? "Local" : info.param == Way::kGloo ? "Gloo" : "Nccl";
}
INSTANTIATE_TEST_SUITE_P(All, CudaCommTest, testing::ValuesIn(ways()), way_name);
INSTANTIATE_TEST_SUITE_P(All, CudaGpusTest, testing::ValuesIn(nccl()), way_name);
INSTANTIATE_TEST_SUITE_P(All, CudaHostSumsTest, testing::Values(Way::kLocal, Way::kGloo), way_name);

}  // namespace
}  // namespace moetrain
