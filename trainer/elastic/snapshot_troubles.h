// SnapshotTroubles: reports when checkpoints begin to fail for a cause, and when they succeed
// again.
//
// Pure. All ranks report the same failure, each in its own words, step after step. ckptd's
// ErrorDetail identifies a cause; without one, its words without their numbers do. A new cause is
// reported at once, then at growing intervals with the number of failed checkpoints. Ranks that
// aborted only because another rank failed have no cause of their own: their reason is reported
// only if no rank names a cause. If ckptd did not answer that other rank, UnsavedWatch reports it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
#include "trainer/elastic/reminder.h"

namespace moetrain {

// Reason of a rank that aborts its part because another rank could not contribute.
inline constexpr std::string_view kOtherRankFailed = "another rank could not contribute";

// Cause of a failed snapshot, without the "run R step S:" prefixes of ckptd, libckpt and ranks.
std::string snapshot_cause(std::string_view reason);
// The cause without its numbers in parentheses and its remedy, for lines after the first one.
std::string brief_cause(std::string_view cause);

class SnapshotTroubles {
 public:
  struct Failure {
    std::string reason;
    ckpt::ErrorDetail detail = ckpt::ErrorDetail::kNone;
  };
  // A rank's part of the snapshot of this step failed. False: only because ckptd did not answer
  // another rank.
  bool failed(uint64_t step, const Failure& failure, uint64_t now_ns);
  // A rank's part of the snapshot of this step failed because ckptd did not answer it.
  void unanswered(uint64_t step);
  // Training rewinds to an earlier step, and takes the failed snapshots again.
  void rewound();
  // The snapshot of this step is durable.
  void durable(uint64_t step);
  // Lines due for printing now.
  std::vector<std::string> lines(uint64_t now_ns);
  // Cause of the newest failure; empty while checkpoints succeed.
  const std::string& cause() const { return cause_; }
  // `cause` for another line: brief if a line has explained it, with the step of that line.
  std::string repeated_cause(const std::string& cause) const;

 private:
  void report_cause(uint64_t step, std::string cause, ckpt::ErrorDetail detail, uint64_t now_ns);

  std::vector<std::string> lines_;
  std::map<uint64_t, uint64_t> without_cause_;  // step -> time of the first such failure
  std::set<uint64_t> failed_;                   // steps newer than the last durable one
  std::set<uint64_t> unanswered_;               // steps, newer than the last durable one
  std::string cause_;
  std::string key_;             // identity of the cause: constant over steps and ranks
  uint64_t reported_step_ = 0;  // of the line that explained the cause
  Reminder reminder_;
};

}  // namespace moetrain
