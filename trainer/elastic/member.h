// Member: this rank's place in the group, epoch after epoch.
//
// Owns the session with ckptd. A session lives as long as the process and reconnects by itself; an
// epoch ends when a member is lost, and the survivors join the next one.
#pragma once

#include <ckpt/client.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/daemon_patience.h"
#include "trainer/checkpoint/units.h"
#include "trainer/comm/comm_nccl.h"
#include "trainer/comm/comm_thread.h"
#include "trainer/comm/device_collectives.h"
#include "trainer/elastic/nccl_tries.h"
#include "trainer/elastic/rank_options.h"

namespace moetrain {

class Member {
 public:
  // Largest contribution of this rank to a snapshot, in bytes.
  struct Share {
    uint64_t bytes = 0;
    uint64_t restart_bytes = 0;  // the same with --on-loss restart, for the remedy
  };
  // Connects and registers the run's units. Waits for a ckptd that is starting. The options outlive
  // the member.
  static Result<Member> open(const RankOptions& options, const std::vector<StateUnit>& units,
                             const Share& share);

  // Joins the next epoch; returns when all ranks have joined. The first join uses the resume mode
  // of the options, later ones continue. In an elastic run, a rank with state continues with the
  // other survivors.
  Result<ckpt::client::Epoch> join(bool has_state = false);
  // The next epoch, of the same ranks, starts from this view instead of the newest one, in a new
  // lineage. All ranks of the joined epoch must request this.
  void return_to(const ckpt::client::ViewPoint& view) { next_view_ = NextView{view}; }
  // The same, from the newest complete view; if there is none, from the seed.
  void return_to_newest() { next_view_ = NextView{}; }
  bool returns_to_view() const { return next_view_.has_value(); }
  // The collectives of the joined epoch, for this rank's device: Gloo's, and NCCL's for GPU memory
  // if the ranks agree on it (device_collectives.h). With a communication thread if the schedule of
  // sharded experts needs one (comm_thread.h).
  //
  // NCCL may fail although no rank is lost. The ranks then retry in the next epoch. After three
  // failed tries of this rank, or if a retry cannot help, a static group fails with that error: it
  // promises the same bits, and the host's collectives sum in another order. An elastic group
  // continues without NCCL: this rank reports from then on that it has no GPU for NCCL. Each group
  // decides from the reports of all its ranks, so ranks need not know each other's counts.
  struct Group {
    std::unique_ptr<Comm> comm;
    DeviceCollectives collectives;
  };
  Result<Group> connect(const ckpt::client::Epoch& epoch, Device& device);
  // The group of the joined epoch has completed a step, or all ranks leave it in agreement.
  void group_worked() { nccl_tries_.worked(); }
  // This rank leaves the group because of an error. Call this before ckptd learns of the error from
  // any rank: until then, ckptd reports only members that were lost.
  void group_failed();
  // Why this rank cannot use NCCL; empty: it can.
  const std::string& no_nccl() const { return no_nccl_; }

  // Handles messages from ckptd, without waiting. A ckptd that is down is no error.
  void poll();
  // True if ckptd answers, as of the last poll().
  bool answers() const {
    return session_.fd() >= 0 && patience_->silence_ms() < DaemonPatience::kAbsentMs;
  }
  // Limits how long calls of the session wait for a ckptd that does not answer.
  DaemonPatience& patience() { return *patience_; }
  // Waits until ckptd answers, at most this long.
  void await_answer(uint32_t timeout_ms);
  // Why the joined epoch is over; nullopt: it is not over.
  std::optional<std::string> epoch_over() const;
  // Waits until ckptd has noticed that the epoch is over, at most this long.
  void await_epoch_end(uint32_t timeout_ms);

  ckpt::client::Session& session() { return session_; }

 private:
  Member(const RankOptions& options, std::unique_ptr<DaemonPatience> patience,
         ckpt::client::Session session)
      : options_(&options), patience_(std::move(patience)), session_(std::move(session)) {}

  // Joins; retries for a short time while another job trains the run.
  Result<ckpt::client::Epoch> join_after_other_job(const ckpt::client::JoinOptions& join);
  // Options of a communicator of the epoch. `lane` is part of its keys, so that two communicators
  // of one epoch have no key in common.
  GlooOptions gloo_options(const ckpt::client::Epoch& epoch, const std::string& lane);
  Result<Group> connect_first(const ckpt::client::Epoch& epoch, Device& device);
  Result<DeviceCollectives> agree(Comm& host, Device& device);
  Result<std::unique_ptr<Comm>> connect_nccl(std::unique_ptr<Comm> host,
                                             const NcclOptions& options);
  // True if a member of the last epoch is missing.
  bool lost_member(const ckpt::client::Epoch& epoch);

  const RankOptions* options_;
  std::unique_ptr<DaemonPatience> patience_;  // outlives the session
  ckpt::client::Session session_;
  bool joined_before_ = false;
  struct NextView {
    std::optional<ckpt::client::ViewPoint> view;  // none: the newest
  };
  std::optional<NextView> next_view_;  // of return_to()
  uint32_t epoch_rank_ = 0;            // in the newest epoch
  uint32_t epoch_size_ = 0;            // of it
  uint32_t group_size_ = 0;            // of the newest epoch that began to connect
  bool lost_a_peer_ = false;           // in the last epoch, when its group failed
  NcclTries nccl_tries_;
  std::string nccl_error_;  // of the newest try
  std::string no_nccl_;
};

}  // namespace moetrain
