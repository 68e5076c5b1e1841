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

  // Joins the next epoch; returns when all ranks have. The first time with the resume mode of the
  // options, afterwards to continue; where the run is elastic and this rank has its state, to go on
  // with whoever else is left.
  Result<ckpt::client::Epoch> join(bool has_state = false);
  // The next epoch is one of the same ranks. It starts from this view, not from the newest one, and
  // opens another lineage. All ranks of the joined epoch ask for it.
  void go_back_to(const ckpt::client::ViewPoint& view) { go_back_ = GoBack{view}; }
  // The same, from the newest view that ckptd holds for complete; without one, from the seed.
  void go_back_to_newest() { go_back_ = GoBack{}; }
  bool goes_back() const { return go_back_.has_value(); }
  // The collectives of the joined epoch, for this rank's device: Gloo's, and NCCL's for what lies
  // on GPUs, where the ranks agree on that (device_collectives.h). Where the schedule of sharded
  // experts needs it, with a thread beside them (comm_thread.h).
  //
  // NCCL may fail though nobody is lost. Then the ranks try again in the next epoch. Where this
  // rank has tried three times in vain, or another try cannot help, a static group ends with that
  // error: it promises the same bits, and sums have another order elsewhere. An elastic group goes
  // on without NCCL: this rank says from then on that it has no GPU for it, and as every group
  // decides by what all its ranks say, it need not know what others have counted.
  struct Group {
    std::unique_ptr<Comm> comm;
    DeviceCollectives collectives;
  };
  Result<Group> connect(const ckpt::client::Epoch& epoch, Device& device);
  // The joined epoch's group has done a step, or all leave it in agreement.
  void group_worked() { nccl_tries_.worked(); }
  // This rank leaves it because of an error: before ckptd hears of that from anybody.
  void group_failed();
  // Why this rank has no GPU for NCCL, if that is so.
  const std::string& no_nccl() const { return no_nccl_; }

  // Handles what ckptd has sent, without waiting. A ckptd that is away is no error.
  void poll();
  // Does ckptd answer? As of the last poll().
  bool answers() const {
    return session_.fd() >= 0 && patience_->silence_ms() < DaemonPatience::kAwayMs;
  }
  // For how long calls of the session wait for a ckptd that does not.
  DaemonPatience& patience() { return *patience_; }
  // Waits until it does, at most this long.
  void await_answer(uint32_t timeout_ms);
  // Why the joined epoch is over; nothing while it goes on.
  std::optional<std::string> epoch_over() const;
  // Waits until ckptd has noticed that the epoch is over, at most this long.
  void await_epoch_end(uint32_t timeout_ms);

  ckpt::client::Session& session() { return session_; }

 private:
  Member(const RankOptions& options, std::unique_ptr<DaemonPatience> patience,
         ckpt::client::Session session)
      : options_(&options), patience_(std::move(patience)), session_(std::move(session)) {}

  // Joins, and asks again for a moment while another job trains the run.
  Result<ckpt::client::Epoch> join_after_other_job(const ckpt::client::JoinOptions& join);
  // Options of a communicator of the epoch. `lane` is part of its keys: two communicators of one
  // epoch have none in common.
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
  struct GoBack {
    std::optional<ckpt::client::ViewPoint> view;  // none: the newest
  };
  std::optional<GoBack> go_back_;  // in the next epoch
  uint32_t epoch_rank_ = 0;        // in the newest epoch
  uint32_t epoch_size_ = 0;        // of it
  uint32_t group_size_ = 0;        // of the newest epoch that connections were begun in
  bool lost_a_peer_ = false;       // in the one before, when that failed
  NcclTries nccl_tries_;
  std::string nccl_error_;  // of the newest try
  std::string no_nccl_;
};

}  // namespace moetrain
