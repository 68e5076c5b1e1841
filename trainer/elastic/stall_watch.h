// StallWatch: tells when training stood still for a checkpoint, why, and what helps.
//
// Pure. Only waits count: for earlier checkpoints to be written, for a free slab, for ckptd. The
// copy into the arena is work, and the report has it. A cause is told when it first stalls
// training, then at growing intervals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/elastic/events.h"
#include "trainer/elastic/reminder.h"

namespace moetrain {

class StallWatch {
 public:
  static constexpr double kTellMs = 500;

  // A checkpoint became durable: how fast its disk is.
  void durable(uint64_t bytes, double durable_ms);
  // A step is complete. The line to tell, if there is one.
  std::optional<std::string> stepped(const RankEvent& step);

 private:
  std::string speed() const;

  uint64_t bytes_ = 0;  // of a rank, in its newest durable checkpoint
  double durable_ms_ = 0;
  Reminder disk_told_;
  Reminder slabs_told_;
  uint64_t stalls_ = 0;
  double stalled_ms_ = 0;
};

}  // namespace moetrain
