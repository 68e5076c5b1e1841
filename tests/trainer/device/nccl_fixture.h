// Ranks on the test double of NCCL: threads of the test, with emulated devices.
#pragma once

#include <gmock/gmock.h>

#include <thread>

#include "tests/support/nccl_double/control.h"
#include "tests/trainer/comm/comm_groups.h"
#include "trainer/comm/comm_nccl.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {

class NcclFixture : public testing::Test {
 protected:
  void SetUp() override { nccl_double::reset(); }
  void TearDown() override {
    EXPECT_EQ(nccl_.wrong_calls, 0);
    EXPECT_EQ(nccl_.communicators, 0);
    nccl_double::reset();
  }

  struct Setting {
    uint32_t ranks = 1;
    bool one_device = false;
    uint32_t device_timeout_ms = 20'000;
    NcclOptions nccl = {};  // without device and rendezvous
  };
  using Made = Result<std::unique_ptr<Comm>>;
  // Runs `body` on every rank, in threads: with the device, and the communicator or its error.
  void on_ranks(const Setting& setting, const std::function<void(Made&, Device&)>& body) {
    auto hosts = make_comms(CommKind::kLocal, setting.ranks, /*timeout_ms=*/20'000);
    std::vector<std::jthread> threads;
    threads.reserve(hosts.size());
    for (auto& host : hosts) {
      threads.emplace_back([&] {
        const int index = setting.one_device ? 0 : static_cast<int>(host->rank());
        auto device = make_cuda_device({.index = index, .timeout_ms = setting.device_timeout_ms});
        ASSERT_TRUE(device.ok()) << device.error().message;
        NcclOptions options = setting.nccl;
        options.device = device->get();
        options.rendezvous = rendezvous_.callbacks();
        Made comm = make_nccl_comm(std::move(host), options);
        body(comm, **device);
      });
    }
  }
  // Status of an all_reduce of a tensor.
  static Status all_reduce(Comm& comm, Device& device) {
    Tensor tensor(device, Type::kFloat, 10);
    tensor.zero();
    return comm.all_reduce_sum(tensor);
  }
  // Checks that making a communicator fails with this error on all ranks.
  void cannot_connect(const Setting& setting, ckpt::ErrorCode code, const std::string& message) {
    on_ranks(setting, [&](Made& comm, Device&) {
      ASSERT_FALSE(comm.ok());
      EXPECT_EQ(comm.error().code, code) << comm.error().message;
      EXPECT_THAT(comm.error().message, testing::HasSubstr(message));
    });
  }

  nccl_double::Control& nccl_ = nccl_double::control();
  MapRendezvous rendezvous_;
};

}  // namespace moetrain
