#include "trainer/elastic/unsaved_watch.h"

#include <fmt/format.h>

#include "formats/base/counted.h"
#include "trainer/elastic/events.h"
#include "trainer/elastic/snapshot_troubles.h"
#include "trainer/report/render.h"

namespace moetrain {

namespace {

constexpr uint64_t kNanosPerMs = 1'000'000;
// Time limits after a signal: for a daemon that is gone, hangs, or is being started.
constexpr uint64_t kGoneMs = 700;
constexpr uint64_t kHangsMs = 2'000;
constexpr uint64_t kStartsMs = 5'000;
// Time limit after a signal for a daemon that does not answer.
uint64_t patience_ms(const UnsavedWatch::Daemon& daemon) {
  return daemon.starting ? kStartsMs : daemon.gone ? kGoneMs : kHangsMs;
}

// A disk without progress for this long is reported.
constexpr double kStuckMs = 5'000;
// A rank waits this long for an answer before it fails or postpones a checkpoint.
constexpr uint64_t kAnswerAwaitedNs = 1'000 * kNanosPerMs;

}  // namespace

UnsavedWatch::UnsavedWatch(UnsavedOptions options)
    : options_(std::move(options)),
      no_answer_(fmt::format("ckptd at {} does not answer", options_.socket)),
      gaps_(no_answer_) {}

void UnsavedWatch::begins(uint64_t step, uint64_t now_ns) {
  step_ = step;
  gaps_.begins(step, now_ns);
  membership_changed();
}

void UnsavedWatch::membership_changed() {
  saving_.reset();
  end_reported_ = false;
  stuck_.clear();
}

void UnsavedWatch::durable(uint64_t step, uint64_t now_ns) {
  progress_ns_ = now_ns;
  if (step < gaps_.saved_step()) return;
  gaps_.durable(step, now_ns);
  limit_reminder_.reset();
}

void UnsavedWatch::failed(uint64_t step, const std::string& cause, uint64_t now_ns) {
  gaps_.failed(step, cause, now_ns);
}

void UnsavedWatch::unanswered(uint64_t step, uint64_t now_ns) {
  gaps_.unanswered(step, now_ns - std::min(now_ns, kAnswerAwaitedNs));
}

void UnsavedWatch::saving(uint64_t step, uint64_t now_ns) {
  if (saving_ == step) return;  // another rank, or another attempt
  saving_ = step;
  progress_ns_ = now_ns;
}

std::string UnsavedWatch::cause() const {
  if (silent_) return no_answer_;
  const std::string failure = gaps_.failure();
  return failure.empty() ? stuck_ : brief_cause(failure);
}

std::string UnsavedWatch::unsaved_text() const {
  return step_ <= saved_step() ? "" : report::unsaved_steps_text(saved_step(), step_);
}

UnsavedWatch::Finding UnsavedWatch::poll(const Daemon& daemon, uint64_t now_ns) {
  if (daemon.bytes_written != bytes_written_) progress_ns_ = now_ns;
  bytes_written_ = daemon.bytes_written;
  Finding finding;
  check_silence(daemon, now_ns, finding);
  check_limits(now_ns, finding);
  check_end(daemon, now_ns, finding);
  return finding;
}

void UnsavedWatch::check_silence(const Daemon& daemon, uint64_t now_ns, Finding& finding) {
  if (daemon.silent_ms == 0) {
    if (silent_) finding.lines.push_back(fmt::format("ckptd at {} answers again", options_.socket));
    silent_ = false;
    silence_reminder_.reset();
    return gaps_.answers();
  }
  if (daemon.silent_ms < kSilentMs || !silence_reminder_.due(now_ns)) return;
  std::string line =
      fmt::format("no checkpoint since step {}: {}; retrying", saved_step(), no_answer_);
  if (silent_) {
    line += fmt::format(" (no answer for {}, training is at step {})",
                        report::human_ms(static_cast<double>(daemon.silent_ms)), step_);
  }
  finding.lines.push_back(std::move(line));
  silent_ = true;
  silence_reminder_.reported(now_ns);
  gaps_.silent(now_ns - std::min(now_ns, daemon.silent_ms * kNanosPerMs),
               /*missed=*/saving_.has_value());
}

std::optional<std::string> UnsavedWatch::over_limit(uint64_t now_ns) const {
  if (step_ <= saved_step()) return std::nullopt;
  const uint64_t steps = step_ - saved_step();
  if (options_.steps_max && steps > *options_.steps_max) {
    return fmt::format("{}, more than the {} of --unsaved-max", ckpt::base::counted(steps, "step"),
                       *options_.steps_max);
  }
  const double ms = ms_between(gaps_.saved_ns(), now_ns);
  if (options_.ms_max && ms > static_cast<double>(*options_.ms_max)) {
    return fmt::format("{}, more than the {} of --unsaved-max", report::human_ms(ms),
                       report::human_ms(static_cast<double>(*options_.ms_max)));
  }
  return std::nullopt;
}

void UnsavedWatch::check_limits(uint64_t now_ns, Finding& finding) {
  if (saving_ || stopped_) return;
  const std::optional<std::string> over = over_limit(now_ns);
  if (!over || !limit_reminder_.due(now_ns)) return;
  limit_reminder_.reported(now_ns);
  std::string line = fmt::format("no checkpoint since step {} for {}", saved_step(), *over);
  if (const std::string why = cause(); !why.empty()) line += ": " + why;
  if (options_.stop) {
    line += "; the ranks save and stop (--on-unsaved stop)";
    stopped_ = true;
    finding.verdict = Verdict::kStop;
  }
  finding.lines.push_back(std::move(line));
}

double UnsavedWatch::stuck_ms(uint64_t now_ns) const { return ms_between(progress_ns_, now_ns); }

void UnsavedWatch::check_end(const Daemon& daemon, uint64_t now_ns, Finding& finding) {
  if (!saving_ || ended_) return;
  const bool silent = daemon.silent_ms >= kSilentMs;
  if (!end_reported_ && (silent || stuck_ms(now_ns) >= kStuckMs)) {
    end_reported_ = true;
    const uint64_t wait_ms = silent && daemon.stop_asked ? patience_ms(daemon) : kEndMs;
    finding.lines.push_back(fmt::format(
        "saving step {}: {}; waiting at most {} s for it", *saving_,
        silent ? no_answer_ : fmt::format("ckptd at {} makes no progress", options_.socket),
        wait_ms / 1'000));
  }
  if (stuck_ms(now_ns) < static_cast<double>(kEndMs)) return;
  ended_ = true;
  stuck_ = fmt::format("ckptd at {} made no progress for {} s", options_.socket, kEndMs / 1'000);
  finding.verdict = Verdict::kEnd;
}

// A wait without progress that had begun before the signal ends with it; a save that the signal
// began gets its time.
bool UnsavedWatch::cannot_save(const Daemon& daemon, uint64_t asked_ns) const {
  if (daemon.silent_ms >= patience_ms(daemon)) return true;
  return saving_ && stuck_ms(asked_ns) >= kStuckMs;
}

}  // namespace moetrain
