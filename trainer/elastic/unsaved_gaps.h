// UnsavedGaps: stretches of training without a checkpoint, for the report.
//
// A gap lies between two durable checkpoints that follow each other. It is worth a row of the
// report if a checkpoint was missed in it (failed or postponed), if ckptd did not answer, people
// were told and a later checkpoint was missed meanwhile, or if later checkpoints had been failing
// for kLateMs when the one that ends it became durable. Its time runs from the first sign of
// trouble to the checkpoint that ends it. The times of rows do not overlap, and together they cover
// the trouble. The cause of a row is that of its gap: an earlier one's is over with the checkpoint
// between them.
//
// Pure. Times are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/report/report.h"

namespace moetrain {

class UnsavedGaps {
 public:
  static constexpr double kLateMs = 5'000;

  // `no_answer`: cause of a gap in which ckptd does not answer.
  explicit UnsavedGaps(std::string no_answer) : no_answer_(std::move(no_answer)) {}

  // Training starts at `step`, which is saved (resume) or is 0 (seed). An open gap continues.
  void begins(uint64_t step, uint64_t now_ns);
  // The checkpoint of this step failed for this reason.
  void failed(uint64_t step, const std::string& cause, uint64_t now_ns);
  // The checkpoint of this step was postponed, or failed, because ckptd has not answered since
  // then.
  void unanswered(uint64_t step, uint64_t since_ns);
  // ckptd has not answered since then, and users were told. `missed`: a checkpoint waits for it.
  void silent(uint64_t since_ns, bool missed);
  // ckptd answers. A silence that cost no checkpoint is forgotten.
  void answers();
  void durable(uint64_t step, uint64_t now_ns);

  uint64_t saved_step() const { return saved_; }
  uint64_t saved_ns() const { return saved_ns_; }
  // Why the newest checkpoint failed; empty if none has since the newest durable one.
  std::string failure() const;
  // Closed gaps, then the open one, up to `step`. `ended`: why the run is over before its last
  // checkpoint, for steps that no gap covers; empty: it is not.
  std::vector<report::Unsaved> periods(uint64_t step, uint64_t now_ns,
                                       const std::string& ended) const;

 private:
  struct Miss {
    std::string cause;   // as last reported; empty: ckptd did not answer
    uint64_t at_ns = 0;  // of its first report
  };
  struct Silence {
    uint64_t since_ns = 0;
    bool reported = false;
    bool missed = false;    // a checkpoint waits for its end
    bool answered = false;  // it is over
  };
  // Misses of the open gap up to this step.
  bool missed_until(uint64_t step) const {
    return !misses_.empty() && misses_.begin()->first <= step;
  }
  // Does a durable checkpoint of this step end a gap that is worth a row?
  bool ends_a_row(uint64_t step, uint64_t now_ns) const;
  // When the trouble of the open gap began, as far as misses up to `step` tell.
  uint64_t trouble_ns(uint64_t step) const;
  // The open gap with the misses up to `step`, as if it ended there now.
  report::Unsaved gap_until(uint64_t step, uint64_t now_ns) const;

  const std::string no_answer_;
  uint64_t saved_ = 0;
  uint64_t saved_ns_ = 0;
  uint64_t gap_ns_ = 0;              // the time before belongs to earlier rows, or to no trouble
  std::map<uint64_t, Miss> misses_;  // by step, newer than saved_
  std::optional<Silence> silence_;   // the newest that may have cost a checkpoint
  std::vector<report::Unsaved> closed_;
};

}  // namespace moetrain
