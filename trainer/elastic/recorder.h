// Recorder: turns the events of all ranks into the report of the run. Pure: events in, report out.
//
// It also holds training to its promise: the loss of a step is the same on every rank, and a step
// that is done again after a failure gives the same bits as the first time, unless experts came
// back older than the rest (tokens were lost) before one of the two.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/elastic/events.h"
#include "trainer/elastic/recovery_times.h"
#include "trainer/elastic/stragglers.h"
#include "trainer/report/report.h"

namespace moetrain {

class Recorder {
 public:
  Recorder(uint32_t ranks, uint64_t tokens_per_step);

  void add(const RankEvent& event);
  // The supervisor gives a rank up that hangs: its loss began with the last sign of life.
  void rank_hangs(uint32_t rank);
  // The supervisor found the rank's process dead.
  void rank_died(uint32_t rank, uint64_t now_ns);
  // ckptd was found dead, and answered again.
  void daemon_died(uint64_t now_ns);
  void daemon_back(uint64_t now_ns);

  // The newest step that some rank has completed in the current epoch.
  uint64_t step() const { return step_; }
  float loss() const;
  // True if the event of this step is the first of its epoch: for progress and metrics, where a
  // step counts once, not once per rank.
  bool is_first_of_step(const RankEvent& event);
  // What broke the promise above, one sentence each; empty if nothing did.
  const std::vector<std::string>& mismatches() const { return mismatches_; }
  // Steps whose snapshot was announced durable by ckptd.
  const std::set<uint64_t>& durable_steps() const { return durable_steps_; }

  report::Report report() const;

 private:
  struct Checkpoint {
    // As planned by all ranks: one that dies before it says so has brought its part all the same.
    uint64_t bytes = 0;
    uint64_t bytes_kept = 0;
    uint64_t rank_bytes_max = 0;
    double rank_bytes_mean = 0;
    double stall_ms = 0;  // the slowest rank
    std::vector<double> durable_ms;
    bool durable = false;
  };
  struct OpenFailure {
    report::Failure failure;
    RecoveryTimes times;
    // Of a kill from outside nobody knows when it was: `lost` is the first that was seen of it.
    bool lost_is_known = false;
    uint64_t known_ns = 0;  // when the supervisor knew
    uint64_t last_completed = 0;
    std::set<uint32_t> back;     // ranks that train again
    uint64_t epoch = 0;          // of the epoch they train in
    uint64_t lost_epoch = 0;     // that training was in before
    std::set<uint32_t> members;  // of that one, but who has left since
  };

  // The failure that goes on; begins one if there is none. `known`: that is when a rank was lost,
  // not only when somebody saw it.
  OpenFailure& open_failure(uint64_t lost_ns, bool known);
  // When the rank was last known to take part.
  uint64_t hang_began(uint32_t rank) const;
  void close_failure(const RankEvent& event);
  bool is_past(uint64_t epoch) const;
  static void name_lost(uint32_t rank, report::Failure& failure);
  void add_training(const RankEvent& event);
  void begin_history(const RankEvent& event);
  static void add_survivor(const RankEvent& event, report::Failure& failure);
  // The ranks have come to another group after this step, or do something towards it.
  void add_change(const RankEvent& event);
  void add_first_step(const RankEvent& event);
  void add_step(const RankEvent& event);
  void add_taking(const RankEvent& event);
  void add_snapshot(const RankEvent& event);
  void add_replan(const RankEvent& event);

  const uint32_t ranks_;
  const uint64_t tokens_per_step_;
  uint64_t step_ = 0;
  std::map<uint64_t, uint32_t> loss_bits_;              // by step
  std::map<uint64_t, report::StepLoad> loads_;          // by step
  std::map<uint64_t, std::pair<uint64_t, double>> ms_;  // by step: epoch, slowest rank of it
  std::map<uint64_t, uint64_t> first_seen_;             // step -> epoch counted by is_first_of_step
  std::map<std::pair<uint64_t, uint64_t>, Checkpoint> checkpoints_;  // by (epoch, step)
  std::set<uint64_t> durable_steps_;
  std::map<uint32_t, uint64_t> epoch_of_rank_;
  uint64_t trained_epoch_ = 0;                // the newest that somebody trained in
  std::set<uint32_t> members_;                // who has trained in it, and has not left
  std::map<uint32_t, uint64_t> last_sign_;    // rank -> its newest event
  std::map<uint32_t, uint64_t> last_act_;     // the same but for signs of life
  std::map<uint32_t, uint64_t> dying_since_;  // rank -> when it said so, or last gave a sign
  // Never trained: their loss is the group's loss only if they were being taken into it.
  std::vector<uint32_t> newcomers_lost_;
  std::optional<OpenFailure> open_failure_;
  std::vector<report::Failure> failures_;
  std::optional<RecoveryTimes> went_on_;  // of the last of them; its first steps are to come
  std::vector<report::DaemonFailure> daemon_failures_;
  std::vector<report::Replan> replans_;
  Stragglers stragglers_;
  std::map<uint64_t, report::MemberChange> changes_;  // by step; of losses as well
  std::optional<uint64_t> daemon_down_since_;
  double plt_ = 0;
  double plt_rollback_ = 0;
  std::vector<int64_t> lost_;  // by expert
  report::Pace pace_;
  std::set<uint64_t> lossy_steps_;  // tokens were lost after these, in the history that goes on
  uint64_t history_epoch_ = 0;      // the newest that began another history
  std::vector<std::string> mismatches_;
};

}  // namespace moetrain
