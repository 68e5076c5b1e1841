// StallWatch: reports that a checkpoint blocks training, the cause and the remedy.
//
// Pure. A stall is reported if its waits are long: for earlier checkpoints to be written, for a
// free slab, for ckptd. The copy into the arena is work, and alone is not reported. The reported
// time is the whole stall, as in the report. Ranks wait for each other, so a step stalls once, as
// long as its slowest rank. A long stall is reported while it lasts, and when it is over; a short
// one when it is over. A cause is reported when it first stalls training, then at growing
// intervals.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trainer/elastic/events.h"
#include "trainer/elastic/reminder.h"

namespace moetrain {

class StallWatch {
 public:
  static constexpr double kReportMs = 500;
  // All ranks report a step within this time.
  static constexpr uint64_t kGatherNs = 250'000'000;

  // A rank's share of a checkpoint is durable.
  void durable(const EventHeader& at, const SnapshotEvent& snapshot);
  // A rank waits to take the checkpoint of this step, before it computes the next one.
  void stalling(const EventHeader& at, const StallingEvent& stalling);
  // A rank has completed a step.
  void stepped(const EventHeader& at, const StepEvent& step);
  // Training rewinds to an earlier step: later steps and checkpoints are redone.
  void rewound();
  // A line for the user; nullopt: none is due. Call this several times a second.
  std::optional<std::string> line(uint64_t now_ns);

 private:
  // A checkpoint, as far as ranks have reported it.
  struct Written {
    uint64_t bytes = 0;
    double durable_ms = 0;  // of the slowest rank
    uint32_t ranks = 0;
  };
  struct Stall {
    uint64_t step = 0;
    uint64_t seen_ns = 0;
    double ms = 0;         // of the slowest rank
    double waited_ms = 0;  // part of it: the longest waits of a rank
    bool disk = false;
    bool first = false;     // no checkpoint was durable before it
    bool lasts = false;     // no rank has completed its step
    bool reported = false;  // while it lasts
    bool judged = false;    // reported, or not due
  };
  // The stall of this step; begins one if there is none.
  Stall& at_step(uint64_t step, uint64_t now_ns);
  // A rank stalls for `ms` so far, of which it waited for `waited_ms`.
  void waited(Stall& stall, double ms, double waited_ms, uint32_t snapshots_open);
  bool due(const Stall& stall, uint64_t now_ns);
  // The newest checkpoint that all ranks have reported, if its rate is known.
  const Written* last_written() const;
  std::string cause(const Stall& stall) const;
  std::string disk_cause(const Stall& stall) const;
  std::string text(const Stall& stall, uint64_t now_ns) const;

  std::map<uint64_t, Written> written_;  // by step, the newest ones
  bool any_durable_ = false;
  std::optional<Stall> stall_;  // the newest
  Reminder disk_reminder_;
  Reminder slabs_reminder_;
  uint64_t stalls_ = 0;
  double stalled_ms_ = 0;
};

}  // namespace moetrain
