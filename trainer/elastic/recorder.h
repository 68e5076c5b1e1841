// Recorder: turns the events of all ranks into the report of the run. Pure: events in, report out.
//
// It also checks training's invariant: the loss of a step is the same on every rank, and a step
// that is repeated after a failure gives the same bits as the first time, unless experts were
// restored from older versions (tokens were lost) before one of the two.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/elastic/events.h"
#include "trainer/elastic/exchange_totals.h"
#include "trainer/elastic/failure_log.h"
#include "trainer/elastic/stall_totals.h"
#include "trainer/elastic/stragglers.h"
#include "trainer/report/report.h"

namespace moetrain {

class Recorder {
 public:
  Recorder(uint32_t ranks, uint64_t tokens_per_step);

  void add(const RankEvent& event);
  // See FailureLog.
  void rank_hangs(uint32_t rank) { failure_log_.rank_hangs(rank); }
  uint64_t rank_died(uint32_t rank, uint64_t now_ns) {
    return failure_log_.rank_died(rank, now_ns);
  }
  // ckptd was found dead, or answers again.
  void daemon_died(uint64_t now_ns);
  void daemon_back(uint64_t now_ns);

  // The newest step that some rank has completed in the current epoch.
  uint64_t step() const { return failure_log_.step(); }
  float loss() const;
  // True if the event of this step is the first of its epoch: for progress and metrics, which count
  // a step once, not once per rank.
  bool is_first_of_step(const EventHeader& at);
  // Violations of the invariant above, one sentence each; empty: none.
  const std::vector<std::string>& mismatches() const { return mismatches_; }
  // Steps whose snapshot was announced durable by ckptd.
  const std::set<uint64_t>& durable_steps() const { return durable_steps_; }

  report::Report report() const;

 private:
  struct Checkpoint {
    // Planned by all ranks: a rank that dies before its report has contributed its part anyway.
    uint64_t bytes = 0;
    uint64_t bytes_kept = 0;
    uint64_t rank_bytes_max = 0;
    double rank_bytes_mean = 0;
    std::vector<double> durable_ms;
    ckpt::SnapshotTimings timings;  // each part of the slowest rank
    bool durable = false;
  };
  void on(const EventHeader& at, const TrainingEvent& training);
  void on(const EventHeader& at, const StepEvent& step);
  void on(const EventHeader& at, const TakingEvent& taking);
  void on(const EventHeader& at, const SnapshotEvent& snapshot);
  void on(const EventHeader& at, const PacingEvent& pacing);
  void on(const EventHeader& at, const ReplannedEvent& replanned);
  void on(const EventHeader& at, const RegroupingEvent& regrouping);
  void on(const EventHeader& at, const DrainedEvent& drained);
  // FailureLog and SaveMonitor handle these alone.
  template <OneOf<AliveEvent, ConnectingEvent, DyingEvent, FatalEvent, GroupLostEvent, JoiningEvent,
                  LogEvent, NoticeEvent, PostponedEvent, RestoringEvent, SavedEvent, SavingEvent,
                  ScheduleEvent, StallingEvent>
                Other>
  void on(const EventHeader&, const Other&) {}
  void begin_history(const EventHeader& at, const TrainingEvent& training);
  // The change of members or placement for which the ranks move state after this step.
  report::MemberChange& add_change(uint64_t step, const Relayout& relayout);

  const uint32_t ranks_;
  const uint64_t tokens_per_step_;
  FailureLog failure_log_;
  std::map<uint64_t, uint32_t> loss_bits_;              // by step
  std::map<uint64_t, report::StepLoad> loads_;          // by step
  std::map<uint64_t, std::pair<uint64_t, double>> ms_;  // by step: epoch, slowest rank of it
  std::map<uint64_t, uint64_t> first_seen_;             // step -> epoch counted by is_first_of_step
  std::map<std::pair<uint64_t, uint64_t>, Checkpoint> checkpoints_;  // by (epoch, step)
  StallTotals stalls_;
  std::set<uint64_t> durable_steps_;
  std::vector<report::DaemonFailure> daemon_failures_;
  std::vector<report::Replan> replans_;
  Stragglers stragglers_;
  ExchangeTotals exchange_;
  std::map<uint64_t, report::MemberChange> changes_;  // by step; also of losses
  // State while ckptd was found dead and does not answer yet.
  struct DaemonDown {
    uint64_t step = 0;
    uint64_t since_ns = 0;
  };
  std::optional<DaemonDown> daemon_down_;
  double plt_ = 0;
  double plt_rollback_ = 0;
  std::vector<int64_t> lost_;  // by expert
  report::Pace pace_;
  std::set<uint64_t> lossy_steps_;  // steps after which tokens were lost, in the current history
  uint64_t history_epoch_ = 0;      // the newest epoch that rewound to another history
  std::vector<std::string> mismatches_;
};

}  // namespace moetrain
