// StallWatch: tells when training stood still for a checkpoint, why, and what helps.
//
// Pure. Only waits count: for earlier checkpoints to be written, for a free slab, for ckptd. The
// copy into the arena is work, and the report has it. Ranks wait for each other, so that a step
// stalls once, as long as its slowest rank. A cause is told when it first stalls training, then at
// growing intervals.
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
  static constexpr double kTellMs = 500;
  // All ranks tell of a step within this time.
  static constexpr uint64_t kGatherNs = 250'000'000;

  // A rank's share of a checkpoint is durable.
  void durable(const RankEvent& snapshot);
  // A rank has completed a step.
  void stepped(const RankEvent& step);
  // Training goes back to an earlier step: steps and checkpoints come again.
  void goes_back();
  // The line to tell, if there is one. To be asked several times a second.
  std::optional<std::string> line(uint64_t now_ns);

 private:
  // A checkpoint, as far as ranks have told of it.
  struct Written {
    uint64_t bytes = 0;
    double durable_ms = 0;  // of the slowest rank
    uint32_t ranks = 0;
  };
  struct Stall {
    uint64_t step = 0;
    uint64_t seen_ns = 0;
    double ms = 0;  // of the slowest rank
    bool disk = false;
    bool first = false;   // no checkpoint was durable before it
    bool judged = false;  // told, or not due
  };
  std::string speed() const;
  std::string text(const Stall& stall) const;

  std::map<uint64_t, Written> written_;  // by step, the newest ones
  bool any_durable_ = false;
  std::optional<Stall> stall_;  // the newest
  Reminder disk_told_;
  Reminder slabs_told_;
  uint64_t stalls_ = 0;
  double stalled_ms_ = 0;
};

}  // namespace moetrain
