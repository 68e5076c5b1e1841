// SaveMonitor: the supervisor's messages to users about checkpoints, during a run.
//
// Pure: events of the ranks and the state of ckptd go in; lines, a verdict and the report's periods
// without a checkpoint come out. Each concern is a class of its own: what is unsaved, which
// snapshots are on their way, why snapshots fail, what stalls training.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/elastic/events.h"
#include "trainer/elastic/pending_snapshots.h"
#include "trainer/elastic/snapshot_troubles.h"
#include "trainer/elastic/stall_watch.h"
#include "trainer/elastic/unsaved_watch.h"

namespace moetrain {

class SaveMonitor {
 public:
  explicit SaveMonitor(UnsavedOptions options) : unsaved_(std::move(options)) {}

  void add(const RankEvent& event);
  // Call this several times a second.
  UnsavedWatch::Finding poll(const UnsavedWatch::Daemon& daemon, uint64_t now_ns);

  const UnsavedWatch& unsaved() const { return unsaved_; }
  // Snapshots that ckptd may still make durable, by their steps; empty: there are none.
  std::string pending_text() const { return pending_.text(unsaved_.saved_step()); }
  // A rank's fatal reason, with the cause that another rank has named. A cause that an earlier line
  // has explained is brief here.
  std::string with_cause(const std::string& reason) const;

 private:
  void on(const EventHeader& at, const TrainingEvent& training);
  void on(const EventHeader& at, const StepEvent& step);
  void on(const EventHeader& at, const GroupLostEvent&) { group_left(at); }
  void on(const EventHeader& at, const RegroupingEvent&) { group_left(at); }
  void on(const EventHeader& at, const TakingEvent& taking);
  void on(const EventHeader& at, const SnapshotEvent& snapshot);
  void on(const EventHeader& at, const StallingEvent& stalling);
  void on(const EventHeader& at, const PostponedEvent&);
  void on(const EventHeader& at, const SavingEvent&);
  template <typename Other>
  void on(const EventHeader&, const Other&) {}
  void group_left(const EventHeader& at);
  // Events of a lost epoch may be read after others train in the next one.
  bool is_past(uint64_t epoch) const { return epoch < epoch_; }

  UnsavedWatch unsaved_;
  PendingSnapshots pending_;
  SnapshotTroubles troubles_;
  StallWatch stalls_;
  uint64_t epoch_ = 0;        // the newest that trains
  uint64_t begun_epoch_ = 0;  // the newest that restored a checkpoint
  std::map<uint32_t, uint64_t> epoch_of_rank_;
};

}  // namespace moetrain
