// Groups of communicators for tests: one thread per rank, whatever the transport.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trainer/parallel/comm.h"

namespace moetrain {

enum class CommKind { kLocal, kGloo };

inline std::string comm_kind_name(CommKind kind) {
  return kind == CommKind::kLocal ? "Local" : "Gloo";
}

// All ranks' communicators of a new group, by rank. Fails the test if they cannot be made.
std::vector<std::unique_ptr<Comm>> make_comms(CommKind kind, uint32_t size, uint32_t timeout_ms);

// Runs `body` for each communicator on a thread of its own; returns when all have.
inline void on_all_ranks(std::vector<std::unique_ptr<Comm>>& comms,
                         const std::function<void(Comm&)>& body) {
  std::vector<std::jthread> threads;
  for (auto& comm : comms) threads.emplace_back([&body, &each = *comm] { body(each); });
}

}  // namespace moetrain
