// Member: this rank's place in the group, epoch after epoch.
//
// Owns the session with ckptd. A session lives as long as the process and reconnects by itself; an
// epoch ends when a member is lost, and whoever is left joins the next one.
#pragma once

#include <ckpt/client.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/units.h"
#include "trainer/elastic/rank_options.h"
#include "trainer/parallel/comm.h"

namespace moetrain {

class Member {
 public:
  // Connects and registers the run's units. Waits for a ckptd that is starting. The options outlive
  // the member.
  static Result<Member> open(const RankOptions& options, const std::vector<StateUnit>& units,
                             uint64_t share_bytes);

  // Joins the next epoch; returns when all ranks have. The first time with the resume mode of the
  // options, afterwards to continue; where the run is elastic and this rank has its state, to go on
  // with whoever else is left.
  Result<ckpt::client::Epoch> join(bool has_state = false);
  // The next epoch starts from this view, not from the newest one. All ranks ask for it.
  void go_back_to(const ckpt::client::ViewPoint& view) { go_back_to_ = view; }
  bool goes_back() const { return go_back_to_.has_value(); }
  // The collectives of the joined epoch, for this rank's device: Gloo's, and where every rank has a
  // GPU of its own, NCCL's for what lies there.
  Result<std::unique_ptr<Comm>> connect(const ckpt::client::Epoch& epoch, Device& device);

  // Handles what ckptd has sent, without waiting. A ckptd that is away is no error.
  void poll();
  // Is there a connection to ckptd right now?
  bool connected() const { return session_.fd() >= 0; }
  // Waits until there is one, at most this long.
  void await_connection(uint32_t timeout_ms);
  // Why the joined epoch is over; nothing while it goes on.
  std::optional<std::string> epoch_over() const;
  // Waits until ckptd has noticed that the epoch is over, at most this long.
  void await_epoch_end(uint32_t timeout_ms);

  ckpt::client::Session& session() { return session_; }

 private:
  Member(const RankOptions& options, ckpt::client::Session session)
      : options_(&options), session_(std::move(session)) {}

  const RankOptions* options_;
  ckpt::client::Session session_;
  bool joined_before_ = false;
  std::optional<ckpt::client::ViewPoint> go_back_to_;  // in the next epoch
  uint32_t nccl_attempts_ = 0;  // in a row that have failed, while no peer was lost
};

}  // namespace moetrain
