// FailureLog: losses of ranks, from the first sign of each until all ranks train again. Pure:
// events and deaths of processes in, the report's failures out.
//
// Ranks that are lost before training continues belong to one failure. Events of one rank arrive in
// their order, events of different ranks in any order.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "trainer/elastic/events.h"
#include "trainer/elastic/recovery_times.h"
#include "trainer/report/report.h"

namespace moetrain {

class FailureLog {
 public:
  // `ranks`: group size for events that do not have it.
  explicit FailureLog(uint32_t ranks) : ranks_(ranks) {}

  void add(const RankEvent& event);
  // The supervisor declares a hanging rank lost: its loss began when it last made progress.
  void rank_hangs(uint32_t rank) { dying_since_[rank] = hang_began(rank); }
  // The supervisor found the rank's process dead. Returns the step of the loss for the report
  // (report::Failure::at_step).
  uint64_t rank_died(uint32_t rank, uint64_t now_ns);

  // The newest step that some rank has completed in the current epoch.
  uint64_t step() const { return step_; }
  // The newest epoch that the rank has trained in; 0: none.
  uint64_t epoch_of(uint32_t rank) const;
  // In the order of their ends. The last one may have none: ranks died, and not all train again.
  std::vector<report::Failure> failures() const;

 private:
  struct OpenFailure {
    report::Failure failure;
    RecoveryTimes times;
    // False: a kill from outside. Then `times` begins with the first sign of the loss.
    bool loss_time_known = false;
    uint64_t known_ns = 0;  // when the supervisor knew
    uint64_t last_completed = 0;
    std::set<uint32_t> back;     // ranks that train again
    uint64_t epoch = 0;          // that `back` trains in
    uint64_t lost_epoch = 0;     // the newest epoch that trained before the loss
    std::set<uint32_t> members;  // of lost_epoch, without ranks that have left since
  };

  void on(const EventHeader& at, const GroupLostEvent&);
  void on(const EventHeader& at, const TrainingEvent& training);
  void on(const EventHeader& at, const StepEvent&);
  void on(const EventHeader& at, const DrainedEvent&);
  void on(const EventHeader& at, const SavingEvent&) { in_step_[at.rank] = at.step; }
  void on(const EventHeader& at, const DyingEvent&) { dying_since_[at.rank] = at.time_ns; }
  void on(const EventHeader& at, const ConnectingEvent&) { connected(at); }
  void on(const EventHeader& at, const RestoringEvent&) { connected(at); }
  template <typename Other>
  void on(const EventHeader&, const Other&) {}

  void connected(const EventHeader& at);
  void add_recovery(const EventHeader& at, const TrainingEvent& training);
  void add_first_step(const EventHeader& at);
  // The failure in progress; begins one if there is none. `known`: `lost_ns` is the time of the
  // loss itself, not of its detection.
  OpenFailure& open_failure(uint64_t lost_ns, bool known);
  void close_failure(const EventHeader& at, const TrainingEvent& training);
  static report::Failure to_failure(const OpenFailure& open);
  // True if training continued without the members of this epoch, before the failure in progress.
  bool is_past(uint64_t epoch) const;
  // Time of the rank's last sign of progress.
  uint64_t hang_began(uint32_t rank) const;
  void name_lost(uint32_t rank, report::Failure& failure) const;
  uint64_t lost_at(uint32_t rank) const;

  const uint32_t ranks_;
  uint64_t step_ = 0;
  std::map<uint32_t, uint64_t> epoch_of_;     // rank -> the newest epoch that it trained in
  std::map<uint32_t, uint64_t> in_step_;      // rank -> step that it trains in, or saves
  uint64_t trained_epoch_ = 0;                // the newest of them
  std::set<uint32_t> members_;                // ranks of trained_epoch_ that have not left
  std::map<uint32_t, uint64_t> last_sign_;    // rank -> time of its newest event
  std::map<uint32_t, uint64_t> last_act_;     // the same without heartbeats
  std::map<uint32_t, uint64_t> dying_since_;  // rank -> DyingEvent, or last progress
  // Joining ranks that were lost before they trained: a loss of the group only if it was admitting
  // them.
  std::vector<uint32_t> newcomers_lost_;
  std::optional<OpenFailure> open_;
  std::vector<report::Failure> failures_;
  std::optional<RecoveryTimes> continued_;  // of the last failure, until its first step is complete
};

}  // namespace moetrain
