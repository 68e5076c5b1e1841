// UnsavedWatch: the part of a run that is in no checkpoint, its cause, and the consequence.
//
// Pure. Input: steps, durable checkpoints and the silence of ckptd, with their times. Output:
// sentences for users, a verdict, and the report's periods. CLOCK_MONOTONIC in nanoseconds, as in
// events.
//
// Policy:
//   - A ckptd that does not answer is reported after kSilentMs, and again at growing intervals.
//   - --unsaved-max: beyond that many steps, or that much time, warn the user, or stop the run.
//   - The last checkpoint waits kEndMs for an answer of ckptd or for progress of its disk, no more.
//   - After SIGTERM nothing waits for a ckptd that does not answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/elastic/reminder.h"
#include "trainer/elastic/unsaved_gaps.h"
#include "trainer/report/report.h"

namespace moetrain {

struct UnsavedOptions {
  std::string socket;  // of ckptd, for messages
  // --unsaved-max: at most one of the two is set.
  std::optional<uint64_t> steps_max;
  std::optional<uint64_t> ms_max;
  bool stop = false;  // --on-unsaved
};

class UnsavedWatch {
 public:
  static constexpr uint64_t kSilentMs = 1'250;
  static constexpr uint64_t kEndMs = 60'000;

  // State of ckptd, and whether the run still has time for it.
  struct Daemon {
    uint64_t silent_ms = 0;      // 0: it answers
    bool gone = false;           // no process listens on its socket
    bool starting = false;       // our own ckptd, being started
    uint64_t bytes_written = 0;  // to its disk, so far
    bool stop_asked = false;     // a signal asked the run to stop: cannot_save() holds
  };
  enum class Verdict : uint8_t {
    kContinue,
    kStop,  // --on-unsaved stop: the ranks shall save and stop. Returned once
    kEnd,   // the wait for the last checkpoint has timed out. Returned once
  };
  struct Finding {
    std::vector<std::string> lines;
    Verdict verdict = Verdict::kContinue;
  };

  explicit UnsavedWatch(UnsavedOptions options);

  // Training starts at `step`, which is saved (resume) or is 0 (seed).
  void begins(uint64_t step, uint64_t now_ns);
  // The membership changes; ranks continue to train, or save, with their current state.
  void membership_changed();
  void stepped(uint64_t step) { step_ = std::max(step_, step); }
  void durable(uint64_t step, uint64_t now_ns);
  // The checkpoint of this step failed for this reason.
  void failed(uint64_t step, const std::string& cause, uint64_t now_ns);
  // The checkpoint of this step failed, or is postponed, because ckptd does not answer.
  void unanswered(uint64_t step, uint64_t now_ns);
  // The ranks save the last checkpoint, of this step, and have stopped training.
  void saving(uint64_t step, uint64_t now_ns);

  // Call several times a second.
  Finding poll(const Daemon& daemon, uint64_t now_ns);
  // The run was asked to stop at `asked_ns`: true if waiting for the ranks' save is useless.
  bool cannot_save(const Daemon& daemon, uint64_t asked_ns) const;

  uint64_t saved_step() const { return gaps_.saved_step(); }
  // "steps 21 to 60 are in no checkpoint"; empty if all is saved.
  std::string unsaved_text() const;
  // The cause, in brief: "ckptd at S does not answer"; empty if none is known.
  std::string cause() const;
  // Periods for the report; an open one ends now. `ended`: why the run ends before its last
  // checkpoint, for steps that no period covers; empty: it does not.
  std::vector<report::Unsaved> periods(uint64_t now_ns, const std::string& ended = {}) const {
    return gaps_.periods(step_, now_ns, ended);
  }

 private:
  void check_silence(const Daemon& daemon, uint64_t now_ns, Finding& finding);
  void check_limits(uint64_t now_ns, Finding& finding);
  void check_end(const Daemon& daemon, uint64_t now_ns, Finding& finding);
  std::optional<std::string> over_limit(uint64_t now_ns) const;
  double stuck_ms(uint64_t now_ns) const;

  const UnsavedOptions options_;
  const std::string no_answer_;
  UnsavedGaps gaps_;
  uint64_t step_ = 0;    // the newest complete one
  std::string stuck_;    // the last checkpoint's wait without progress
  bool silent_ = false;  // reported, and not over
  Reminder silence_reminder_;
  Reminder limit_reminder_;
  bool stopped_ = false;
  std::optional<uint64_t> saving_;  // the step of the last checkpoint
  uint64_t progress_ns_ = 0;        // of the last checkpoint
  uint64_t bytes_written_ = 0;
  bool end_reported_ = false;
  bool ended_ = false;
};

}  // namespace moetrain
