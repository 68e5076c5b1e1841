// RunOutcome: how a supervised run ends: stopped, complete or failed, and by what exit code.
//
// Pure: the supervisor reports events, and asks what they mean for the end of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/base/result.h"

namespace moetrain {

class RunOutcome {
 public:
  // A stop signal came; the first one counts.
  void asked_to_stop(int signal, uint64_t now_ns);
  std::optional<int> stop_signal() const { return stop_signal_; }
  uint64_t stopped_ns() const { return stopped_ns_; }
  // The limit of --unsaved-max was reached, with --on-unsaved stop.
  void limit_reached(std::string why) { limit_reached_ = std::move(why); }
  // True once the ranks were asked to save and stop; ranks that start later are asked, too.
  bool is_stopping() const { return stop_signal_.has_value() || !limit_reached_.empty(); }

  // A rank has seen the last checkpoint durable. `reason`: why the ranks stopped by themselves.
  void saved_last(std::string reason);
  bool complete() const { return complete_; }
  // Ranks that waited for the last checkpoint were ended.
  void last_save_failed() { last_save_failed_ = true; }

  // The first failure counts.
  void fail(ckpt::Error error);
  // Same, after a request to end at once: nothing more is saved.
  void fail_unsaved(ckpt::Error error);
  const std::optional<ckpt::Error>& failure() const { return failure_; }

  // The failure for people, with `cause` as its message. A run that was asked to stop names the
  // signal, whatever its failure is.
  std::string failure_text(const std::string& cause) const;
  // Why the run stopped by itself; empty if it did not.
  const std::string& stop_reason() const {
    return saved_reason_.empty() ? limit_reached_ : saved_reason_;
  }
  // "by SIGTERM", "by itself", ...
  std::string stopped_by() const;
  // Longest time that the run's own ckptd may drain.
  uint64_t drain_ms() const;
  // Exit code for a run with a failure().
  int failed_exit_code() const;
  // Exit code for a run that stopped before its last step. `otherwise`: the code for other
  // troubles, or 0.
  int stopped_exit_code(int otherwise) const;

 private:
  std::optional<int> stop_signal_;
  uint64_t stopped_ns_ = 0;  // time of the stop signal
  std::string limit_reached_;
  std::string saved_reason_;
  bool complete_ = false;
  bool last_save_failed_ = false;
  std::optional<ckpt::Error> failure_;
  bool failed_stopping_ = false;  // the failure came after a stop signal, which ended the run
  bool unsaved_stop_ = false;     // the failure is a requested immediate end
};

}  // namespace moetrain
