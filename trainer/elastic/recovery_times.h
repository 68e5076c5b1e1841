// RecoveryTimes: splits the time from a loss of ranks to the survivors' next step into its parts.
// Pure: events in, times out.
//
// A part ends when the last rank has completed it, and the next part begins there: ranks overlap,
// but the parts do not, and add up to the whole. Events of one rank come in order, ranks in any
// order.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "trainer/elastic/events.h"
#include "trainer/report/report.h"

namespace moetrain {

class RecoveryTimes {
 public:
  // A sign of the loss: the first one counts.
  void lost(uint64_t time_ns);
  // GroupLostEvent. A rank that loses a later epoch than the first lost one was regrouping already.
  void noticed(const EventHeader& at);
  // ConnectingEvent or RestoringEvent, then TrainingEvent. Events of a newer epoch turn all time of
  // earlier epochs into regrouping.
  void connected(const EventHeader& at);
  void trains(const EventHeader& at, const TrainingEvent& training);
  // A rank that trains in this epoch has completed a step.
  void stepped(uint32_t rank, uint64_t epoch, uint64_t time_ns);

  uint64_t lost_ns() const { return lost_ns_; }
  uint64_t noticed_ns() const { return noticed_ns_; }  // by the last survivor
  // The newest epoch, and its progress.
  uint64_t epoch() const { return epoch_; }
  uint64_t ready_ns() const { return ready_ns_; }  // when the last rank had its state
  size_t training() const { return training_.size(); }
  size_t stepped() const { return first_step_ns_.size(); }

  // Times in ms; 0 for a part that has not ended, or is unknown.
  report::Failure::Split split_ms() const;
  double whole_ms() const;

 private:
  void begin(uint64_t epoch);
  uint64_t stepped_ns() const;

  uint64_t lost_ns_ = UINT64_MAX;
  uint64_t noticed_epoch_ = 0;
  uint64_t noticed_ns_ = 0;
  uint64_t epoch_ = 0;
  std::map<uint32_t, uint64_t> connected_ns_;
  uint64_t planned_ns_ = 0;
  uint64_t ready_ns_ = 0;
  std::set<uint32_t> training_;
  std::map<uint32_t, uint64_t> first_step_ns_;
};

}  // namespace moetrain
