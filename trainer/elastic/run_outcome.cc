#include "trainer/elastic/run_outcome.h"

#include <signal.h>

#include <utility>

#include "trainer/elastic/stop_signals.h"

namespace moetrain {
namespace {

constexpr int kStoppedExit = 128;  // plus the signal's number, as shells have it

// Time for our own ckptd to drain at the end: slightly more than its own limit.
constexpr uint64_t kDrainMs = 40'000;
// The same after a stop signal, or if the run ended because its disk makes no progress. Snapshots
// announced as durable stay so, however ckptd ends.
constexpr uint64_t kDrainShortMs = 5'000;
constexpr uint64_t kDrainAtOnceMs = 700;

}  // namespace

void RunOutcome::asked_to_stop(int signal, uint64_t now_ns) {
  if (stop_signal_) return;
  stop_signal_ = signal;
  stopped_ns_ = now_ns;
}

void RunOutcome::saved_last(std::string reason) {
  saved_reason_ = std::move(reason);
  complete_ = true;
}

void RunOutcome::fail(ckpt::Error error) {
  if (failure_) return;
  failed_stopping_ = stop_signal_.has_value();
  failure_ = std::move(error);
}

void RunOutcome::fail_unsaved(ckpt::Error error) {
  if (!failure_) unsaved_stop_ = true;
  fail(std::move(error));
}

std::string RunOutcome::failure_text(const std::string& cause) const {
  if (!failed_stopping_ || unsaved_stop_) return cause;
  return fmt::format("stopped by {}{}: {}", signal_name(*stop_signal_),
                     complete_ ? "" : ", without a last checkpoint", cause);
}

std::string RunOutcome::stopped_by() const {
  if (!stop_reason().empty()) return "by itself";
  if (stop_signal_) return "by " + signal_name(*stop_signal_);
  return "as its ranks were asked to stop";
}

uint64_t RunOutcome::drain_ms() const {
  if (unsaved_stop_) return kDrainAtOnceMs;
  return stop_signal_ || last_save_failed_ ? kDrainShortMs : kDrainMs;
}

int RunOutcome::failed_exit_code() const {
  return failed_stopping_ ? kStoppedExit + *stop_signal_ : ckpt::exit_code_for(failure_->code);
}

int RunOutcome::stopped_exit_code(int otherwise) const {
  if (!stop_reason().empty()) return 1;
  // Other errors are on stderr: the sender of the signal expects this code.
  if (stop_signal_) return kStoppedExit + *stop_signal_;
  return otherwise == 0 ? kStoppedExit + SIGTERM : otherwise;
}

}  // namespace moetrain
