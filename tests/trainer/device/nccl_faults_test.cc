// Answers of NCCL that a healthy machine never gives, from a test double that stays in progress,
// fails and stalls on request. Ranks are threads with emulated devices.
#include <gmock/gmock.h>

#include <array>
#include <latch>
#include <set>
#include <thread>

#include "tests/support/cuda_emulator/control.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/device/nccl_fixture.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using testing::AllOf;
using testing::HasSubstr;

// For all tests of this program: one device per rank, and a folder for the double's exchange.
class ThreeDevices : public testing::Environment {
 public:
  void SetUp() override {
    cuda_emulator::set_devices(3);
    ::setenv("NCCL_DOUBLE_FOLDER", folder_.path().c_str(), /*overwrite=*/1);
  }
  void TearDown() override { EXPECT_EQ(nccl_double::control().wrong_calls, 0); }

 private:
  ckpt::test::TempFolder folder_;
};
testing::Environment* const kThreeDevices = testing::AddGlobalTestEnvironment(new ThreeDevices);

class NcclFaultsTest : public NcclFixture {
 protected:
  // Runs a sum and an exchange of its parts on three ranks.
  void exchange_everything() {
    on_ranks({.ranks = 3}, [](Made& comm, Device& device) {
      ASSERT_TRUE(comm.ok()) << comm.error().message;
      const uint32_t me = (*comm)->rank();
      Tensor tensor(device, Type::kFloat, 3);
      tensor.write(std::span<const float>(std::array<float, 3>{1.0f, 2.0f * me, 4}));
      const Status summed = (*comm)->all_reduce_sum(tensor);
      ASSERT_TRUE(summed.ok()) << summed.error().message;
      Tensor all(device, Type::kFloat, 3);
      const std::array<int64_t, 3> one{1, 1, 1};
      const Status sent = (*comm)->all_to_all_v(tensor, one, all, one);
      ASSERT_TRUE(sent.ok()) << sent.error().message;
      tensor.zero();
      const auto values = all.read<float>();
      ASSERT_TRUE(values.ok()) << values.error().message;
      const float mine = std::array<float, 3>{3, 6, 12}[me];
      EXPECT_THAT(*values, testing::ElementsAre(mine, mine, mine));
    });
  }
};

TEST_F(NcclFaultsTest, PollsUntilCollectiveIsQueued) {
  nccl_.asks = 7;
  exchange_everything();
}

TEST_F(NcclFaultsTest, PollsThoughCallClaimsSuccess) {
  nccl_.asks = 7;
  nccl_.claims_success = true;
  exchange_everything();
}

// The asynchronous error appears only after a call has reported success.
TEST_F(NcclFaultsTest, AsynchronousErrorOverridesClaimedSuccess) {
  on_ranks({}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    nccl_.asks = 3;
    nccl_.claims_success = true;
    nccl_.async_error = ncclRemoteError;
    const Status failed = all_reduce(**comm, device);
    nccl_.async_error = ncclSuccess;
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable) << failed.error().message;
  });
}

// No queued work is lost: the slowest rank gets its sum from peers that have already left.
TEST_F(NcclFaultsTest, NormalEndCompletesQueuedWorkWithoutAbort) {
  nccl_.asks = 3;
  on_ranks({.ranks = 3}, [](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    Tensor tensor(device, Type::kFloat, 2);
    tensor.write(std::span<const float>(std::array<float, 2>{1, 2}));
    const Status summed = (*comm)->all_reduce_sum(tensor);
    ASSERT_TRUE(summed.ok()) << summed.error().message;
    (*comm).reset();
    const auto values = tensor.read<float>();
    ASSERT_TRUE(values.ok()) << values.error().message;
    EXPECT_THAT(*values, testing::ElementsAre(3, 6));
  });
  EXPECT_EQ(nccl_.destroyed, 3);
  EXPECT_EQ(nccl_.aborts, 0);
}

TEST_F(NcclFaultsTest, EndWithoutPeersAborts) {
  std::latch over(2);
  on_ranks({.ranks = 2, .nccl = {.timeout_ms = 20}}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    if ((*comm)->rank() == 0) {
      const Status queued = all_reduce(**comm, device);
      EXPECT_TRUE(queued.ok()) << queued.error().message;
      (*comm).reset();
      EXPECT_EQ(nccl_.aborts, 1);
      EXPECT_TRUE(device.synchronize().ok()) << "an abort ends what was queued";
    }
    over.arrive_and_wait();
  });
  EXPECT_EQ(nccl_.destroyed, 1) << "by the rank that has queued nothing";
}

TEST_F(NcclFaultsTest, FailedCommunicatorIsAbortedNotDestroyed) {
  on_ranks({}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    nccl_.async_error = ncclRemoteError;
    EXPECT_FALSE(all_reduce(**comm, device).ok());
    nccl_.async_error = ncclSuccess;
  });
  EXPECT_EQ(nccl_.aborts, 1);
  EXPECT_EQ(nccl_.destroyed, 0);
}

// NCCL may block in an abort; only the calling thread waits then.
TEST_F(NcclFaultsTest, BlockedAbortBlocksNoOtherThread) {
  on_ranks({}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    nccl_.aborts_wait = true;
    std::jthread other([&] { (*comm)->abort("a member was lost"); });
    while (nccl_.aborts == 0) std::this_thread::yield();
    const Status later = all_reduce(**comm, device);
    nccl_.aborts_wait = false;
    nccl_.aborts_wait.notify_all();
    other.join();
    ASSERT_FALSE(later.ok());
    EXPECT_EQ(later.error().code, ErrorCode::kAborted);
    EXPECT_THAT(later.error().message, HasSubstr("a member was lost"));
  });
}

// No rank waits for a rank that neither sends nor receives.
TEST_F(NcclFaultsTest, ARankMayHaveNothingToExchange) {
  on_ranks({.ranks = 3}, [](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    const uint32_t me = (*comm)->rank();
    Tensor send(device, Type::kFloat, me == 0 ? 2 : 0);
    if (me == 0) send.write(std::span<const float>(std::array<float, 2>{5, 6}));
    Tensor recv(device, Type::kFloat, me == 1 ? 2 : 0);
    const std::array<int64_t, 3> to{0, me == 0 ? 2 : 0, 0};
    const std::array<int64_t, 3> from{me == 1 ? 2 : 0, 0, 0};
    const Status sent = (*comm)->all_to_all_v(send, to, recv, from);
    ASSERT_TRUE(sent.ok()) << sent.error().message;
    if (me != 1) {
      const Status done = device.synchronize();  // leaving would end work that is still queued
      EXPECT_TRUE(done.ok()) << done.error().message;
      return;
    }
    const auto values = recv.read<float>();
    ASSERT_TRUE(values.ok()) << values.error().message;
    EXPECT_THAT(*values, testing::ElementsAre(5, 6));
  });
}

// A peer that dies in its first exchange with this rank may appear as any of these errors.
TEST_F(NcclFaultsTest, ErrorAfterConnectMapsToUnavailable) {
  for (const ncclResult_t result : {ncclRemoteError, ncclSystemError, ncclUnhandledCudaError,
                                    ncclInternalError, ncclInvalidUsage}) {
    for (const bool later : {false, true}) {
      SCOPED_TRACE(testing::Message() << result << (later ? " when asked" : " at once"));
      std::atomic<ncclResult_t>& error = later ? nccl_.async_error : nccl_.call_error;
      on_ranks({}, [&](Made& comm, Device& device) {
        ASSERT_TRUE(comm.ok()) << comm.error().message;
        error = result;
        const Status failed = all_reduce(**comm, device);
        error = ncclSuccess;
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
        EXPECT_THAT(failed.error().message,
                    AllOf(HasSubstr("rank 0 all_reduce: NCCL: "), HasSubstr(": as the test")));
        const Status after = all_reduce(**comm, device);
        ASSERT_FALSE(after.ok());
        EXPECT_EQ(after.error().code, ErrorCode::kAborted) << after.error().message;
      });
    }
  }
}

TEST_F(NcclFaultsTest, FailedConnectNamesReason) {
  nccl_.version = NCCL_VERSION(2, 13, 4);
  cannot_connect({}, ErrorCode::kFailedPrecondition, "version 2.13 is loaded, 2.14 or later");
  nccl_.version = NCCL_VERSION(2, 14, 0);
  nccl_.id_error = ncclSystemError;
  cannot_connect({}, ErrorCode::kUnavailable, "drawing an id");
  nccl_.id_error = ncclSuccess;
  cannot_connect({.ranks = 2, .one_device = true}, ErrorCode::kFailedPrecondition,
                 "connecting: NCCL: invalid usage: Duplicate GPU detected");
}

TEST_F(NcclFaultsTest, RefusesDamagedId) {
  Rendezvous rendezvous = rendezvous_.callbacks();
  rendezvous.get = [](const std::string&) -> Result<std::vector<char>> {
    return std::vector<char>(127);
  };
  auto hosts = make_comms(CommKind::kLocal, 2, /*timeout_ms=*/20'000);
  auto device = make_cuda_device({});
  ASSERT_TRUE(device.ok()) << device.error().message;
  const auto comm =
      make_nccl_comm(std::move(hosts[1]), {.device = device->get(), .rendezvous = rendezvous});
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(comm.error().message, HasSubstr("127 bytes"));
}

TEST_F(NcclFaultsTest, WaitsAreBounded) {
  nccl_.stalls = true;
  cannot_connect({.nccl = {.connect_timeout_ms = 5}}, ErrorCode::kDeadlineExceeded,
                 "connecting: NCCL is not done after 5 ms");
  Setting interrupted;
  interrupted.nccl.interrupted = [&]() -> std::optional<std::string> {
    if (nccl_.stalled_asks < 10) return std::nullopt;
    return "the epoch is over";
  };
  cannot_connect(interrupted, ErrorCode::kAborted, "rank 0 connecting: the epoch is over");
  nccl_.stalls = false;
  on_ranks({.nccl = {.timeout_ms = 5}}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    nccl_.stalls = true;
    const Status stalled = all_reduce(**comm, device);
    ASSERT_FALSE(stalled.ok());
    EXPECT_EQ(stalled.error().code, ErrorCode::kDeadlineExceeded);
    const Status later = all_reduce(**comm, device);
    ASSERT_FALSE(later.ok());
    EXPECT_THAT(later.error().message, HasSubstr("all_reduce took too long"));
  });
}

TEST_F(NcclFaultsTest, AbortFromAnotherThreadKeepsFirstReason) {
  on_ranks({}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    nccl_.stalls = true;
    const std::jthread other([&] {
      while (nccl_.stalled_asks == 0) std::this_thread::yield();
      (*comm)->abort("a member was lost");
      (*comm)->abort("again");
    });
    const Status stalled = all_reduce(**comm, device);
    ASSERT_FALSE(stalled.ok());
    EXPECT_EQ(stalled.error().code, ErrorCode::kAborted);
    EXPECT_THAT(stalled.error().message, HasSubstr("a member was lost"));
  });
}

// A collective whose peer never comes hangs on the GPU, not in NCCL's calls.
TEST_F(NcclFaultsTest, DeviceTimeoutEndsCollectiveOfDeadPeer) {
  std::latch over(2);
  on_ranks({.ranks = 2, .device_timeout_ms = 20}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    if ((*comm)->rank() == 0) {
      const Status queued = all_reduce(**comm, device);
      EXPECT_TRUE(queued.ok()) << queued.error().message;
      const Status hangs = device.synchronize();
      EXPECT_FALSE(hangs.ok());
      if (!hangs.ok()) {
        EXPECT_EQ(hangs.error().code, ErrorCode::kDeadlineExceeded) << hangs.error().message;
      }
      (*comm)->abort("nobody comes");
      EXPECT_TRUE(device.synchronize().ok()) << "an abort ends what was queued";
    }
    over.arrive_and_wait();
  });
}

// After a failed allocation a tensor has a null pointer, which NCCL would accept.
TEST_F(NcclFaultsTest, FailedAllocationNeverReachesNccl) {
  constexpr size_t kMoreThanAnyDevice = size_t{1} << 40;
  on_ranks({}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    Tensor tensor(device, Type::kFloat, kMoreThanAnyDevice);
    const Status failed = (*comm)->all_reduce_sum(tensor);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kResourceExhausted) << failed.error().message;
    const Status later = all_reduce(**comm, device);
    ASSERT_FALSE(later.ok());
    EXPECT_EQ(later.error().code, ErrorCode::kAborted) << later.error().message;
  });
  on_ranks({}, [&](Made& comm, Device& device) {
    ASSERT_TRUE(comm.ok()) << comm.error().message;
    const Tensor send(device, Type::kFloat, 4);
    Tensor recv(device, Type::kFloat, kMoreThanAnyDevice);
    const std::array<int64_t, 1> count{4};
    const Status failed = (*comm)->all_to_all_v(send, count, recv, count);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kResourceExhausted) << failed.error().message;
  });
}

// A context would cost memory on another rank's GPU.
TEST_F(NcclFaultsTest, ARankOpensNoContextButItsOwn) {
  cuda_emulator::forget_contexts();
  std::jthread([] {
    const auto device = make_cuda_device({.index = 2});
    ASSERT_TRUE(device.ok()) << device.error().message;
    Tensor tensor(**device, Type::kFloat, 10);
    tensor.zero();
    EXPECT_TRUE(tensor.read<float>().ok());
  }).join();
  EXPECT_EQ(cuda_emulator::contexts(), std::set<int>{2});
}

}  // namespace
}  // namespace moetrain
