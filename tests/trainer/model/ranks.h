// Runs one function per rank in threads of this process, joined before it returns.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/device/device.h"

namespace moetrain {

// The device of the calling thread's rank.
inline Device& cpu_device() {
  thread_local const std::unique_ptr<Device> device = make_cpu_device();
  return *device;
}

// A rank that failed an assertion leaves the others waiting for it; the time-out ends that.
inline void run_ranks(uint32_t ranks, const std::function<void(Comm&)>& body) {
  auto comms = make_local_comms(ranks, /*timeout_ms=*/20'000);
  std::vector<std::jthread> threads;
  for (auto& comm : comms) threads.emplace_back([&body, &comm] { body(*comm); });
}

}  // namespace moetrain
