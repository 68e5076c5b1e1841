// Helpers of benches with several trainer ranks: each rank is a thread with its own session.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "client/include/ckpt/ckpt.h"
#include "formats/base/result.h"

namespace bench {

// Turns the status of a call on this session into a Status, with the session's error message.
inline ckpt::Status checked(ckpt_status status, const ckpt_session* session) {
  if (status == CKPT_OK) return {};
  return ckpt::make_error(static_cast<ckpt::ErrorCode>(status), "{}", ckpt_session_error(session));
}

// Runs `work(rank)` for every rank on its own thread and waits for all. Returns the error of the
// lowest rank that has one.
template <typename Work>
ckpt::Status on_all_ranks(uint32_t ranks, Work work) {
  std::vector<ckpt::Status> outcomes(ranks);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = work(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (ckpt::Status& outcome : outcomes) CKPT_TRY(std::move(outcome));
  return {};
}

}  // namespace bench
