// EpochComm: the collectives of one epoch. ckptd's report that the epoch is over aborts them.
//
// Owned by EpochDriver, from the moment the group is connected until the epoch ends. Used from the
// rank's thread; the thread of its EpochWatch aborts a collective that waits for a lost rank. After
// a failure the communicator is unusable, and the group must be left.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "trainer/comm/comm.h"
#include "trainer/elastic/epoch_watch.h"
#include "trainer/elastic/member.h"

namespace moetrain {

// True for errors that a lost or hanging peer causes, directly or because another rank aborted.
bool is_group_loss(const ckpt::Error& error);

class EpochComm {
 public:
  // `member` outlives it.
  EpochComm(Member& member, std::unique_ptr<Comm> comm)
      : comm_(std::move(comm)), watch_(member, *comm_) {}

  // Runs collectives: calls `work` with the communicator and returns its result. The session with
  // ckptd is lent to the watch meanwhile, so `work` must not use it.
  template <typename Work>
  auto lend(Work&& work) {
    const EpochWatch::Loan loan(watch_);
    return std::forward<Work>(work)(*comm_);
  }
  // One collective each, as in Comm.
  Status all_reduce_max(std::span<int64_t> values);
  Status all_reduce_sum(std::span<int64_t> values);
  Status all_gather(std::span<const int64_t> send, std::span<int64_t> recv);
  Status broadcast(std::span<int64_t> values, uint32_t root);
  Status barrier();

  uint32_t size() const { return comm_->size(); }
  int64_t waited_ns() const { return comm_->waited_ns(); }
  void abort(const std::string& reason) { comm_->abort(reason); }
  // Takes the session back for a call in the middle of lend(), for as long as the result lives.
  EpochWatch::Recall recall() { return EpochWatch::Recall(watch_); }

 private:
  const std::unique_ptr<Comm> comm_;
  EpochWatch watch_;
};

}  // namespace moetrain
