#include "tests/trainer/comm/comm_groups.h"

#include <gtest/gtest.h>

#include "trainer/comm/comm_thread.h"

namespace moetrain {

std::vector<std::unique_ptr<Comm>> make_comms(CommKind kind, uint32_t size, uint32_t timeout_ms) {
  if (kind == CommKind::kLocal) return make_local_comms(size, timeout_ms);
  MapRendezvous rendezvous;
  std::vector<std::unique_ptr<Comm>> comms(size);
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = make_gloo_comm({.rank = rank,
                                  .size = size,
                                  .rendezvous = rendezvous.callbacks(),
                                  .timeout_ms = timeout_ms});
      ASSERT_TRUE(comm.ok()) << comm.error().message;
      comms[rank] = std::move(comm).value();
    });
  }
  threads.clear();
  return comms;
}

std::vector<std::unique_ptr<Comm>> make_comms_with_threads(CommKind kind, uint32_t size,
                                                           uint32_t timeout_ms) {
  auto comms = make_comms(kind, size, timeout_ms);
  auto second = make_comms(kind, size, timeout_ms);
  for (uint32_t rank = 0; rank < size; ++rank) {
    comms[rank] = with_comm_thread(std::move(comms[rank]), std::move(second[rank]));
  }
  return comms;
}

}  // namespace moetrain
