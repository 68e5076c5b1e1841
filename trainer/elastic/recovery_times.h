// RecoveryTimes: where the time went from the loss of ranks to the next step of those that went on.
// Pure: events in, times out.
//
// A part ends when the last rank is through with it, and the next one begins there: ranks overlap,
// but the parts do not, and add up to the whole. Events may come in any order of ranks, those of
// one rank in theirs.
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
  // ConnectingEvent or RestoringEvent, then TrainingEvent. Events of a newer epoch turn all that
  // earlier epochs took into regrouping.
  void connected(const EventHeader& at);
  void trains(const EventHeader& at, const TrainingEvent& training);
  // The rank that trains in this epoch has completed a step.
  void stepped(uint32_t rank, uint64_t epoch, uint64_t time_ns);

  uint64_t lost_ns() const { return lost_ns_; }
  uint64_t noticed_ns() const { return noticed_ns_; }  // by the last survivor
  // Of the newest epoch.
  uint64_t epoch() const { return epoch_; }
  uint64_t ready_ns() const { return ready_ns_; }  // when the last rank had its state
  size_t training() const { return training_.size(); }
  size_t stepped() const { return first_step_ns_.size(); }

  // What has not been yet, or is not known, is 0.
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
