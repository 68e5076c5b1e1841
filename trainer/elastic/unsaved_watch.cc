#include "trainer/elastic/unsaved_watch.h"

#include <fmt/format.h>

#include <charconv>

#include "formats/base/counted.h"
#include "formats/base/parse.h"
#include "trainer/elastic/events.h"
#include "trainer/report/render.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr uint64_t kNanosPerMs = 1'000'000;
// After a signal: for a daemon that is gone, one that hangs, and one that the supervisor starts.
constexpr uint64_t kGoneMs = 700;
constexpr uint64_t kHangsMs = 2'000;
constexpr uint64_t kStartsMs = 5'000;
// A disk without progress for so long is worth a line.
constexpr double kStuckMs = 5'000;
// A rank waits so long for an answer before it fails or postpones a checkpoint.
constexpr uint64_t kAnswerAwaitedNs = 1'000 * kNanosPerMs;

}  // namespace

ckpt::Result<UnsavedOptions> parse_unsaved(const std::string& max, const std::string& policy) {
  UnsavedOptions options;
  options.stop = policy == "stop";
  if (max.empty()) {
    if (!options.stop) return options;
    return make_error(ErrorCode::kInvalidArgument,
                      "--on-unsaved stop: needs --unsaved-max STEPS or TIME, like 100 or 10m");
  }
  uint64_t steps = 0;
  const auto [end, error] = std::from_chars(max.data(), max.data() + max.size(), steps);
  if (error == std::errc() && end == max.data() + max.size() && steps > 0) {
    options.steps_max = steps;
    return options;
  }
  const auto time = ckpt::base::parse_duration(max);
  if (time.ok() && time->count() >= int64_t{kNanosPerMs}) {
    options.ms_max = static_cast<uint64_t>(time->count()) / kNanosPerMs;
    return options;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "--unsaved-max {}: must be a number of steps, at least 1, or a time with its "
                    "unit, like 30s or 10m",
                    max);
}

void UnsavedWatch::begins(uint64_t step, uint64_t now_ns) {
  step_ = step;
  saved_ = step;
  saved_ns_ = now_ns;
  failed_ = 0;
  if (open_) open_->unsaved.since = step;
  goes_on();
}

void UnsavedWatch::goes_on() {
  saving_.reset();
  end_told_ = false;
  stuck_.clear();
}

void UnsavedWatch::durable(uint64_t step, uint64_t now_ns) {
  progress_ns_ = now_ns;
  if (step < saved_) return;
  saved_ = step;
  saved_ns_ = now_ns;
  limit_told_.reset();
  if (step < failed_) {  // was on its way before the failure
    if (open_) open_->unsaved.since = step;
    return;
  }
  failure_.clear();
  if (!open_) return;
  if (!open_->silence || open_->missed) {
    open_->unsaved.until = step;
    open_->unsaved.ms = open_->ms(now_ns);
    open_->unsaved.saved = true;
    periods_.push_back(std::move(open_->unsaved));
  }
  open_.reset();
}

void UnsavedWatch::failed(uint64_t step, const std::string& cause, uint64_t now_ns) {
  failed_ = std::max(failed_, step);
  failure_ = cause;
  open_period(cause, now_ns, /*silence=*/false);
  open_->missed = true;
  if (!open_->silence || !open_->answered_ns) return;
  // The silence is over, and something else keeps the steps unsaved.
  open_->silence = false;
  open_->unsaved.cause = cause;
}

void UnsavedWatch::unanswered(uint64_t step, uint64_t now_ns) {
  failed_ = std::max(failed_, step);
  open_period(no_answer(), now_ns - std::min(now_ns, kAnswerAwaitedNs), /*silence=*/true);
  open_->missed = true;
}

void UnsavedWatch::saving(uint64_t step, uint64_t now_ns) {
  if (saving_ == step) return;  // another rank, or another attempt
  saving_ = step;
  progress_ns_ = now_ns;
}

void UnsavedWatch::open_period(const std::string& cause, uint64_t began_ns, bool silence) {
  if (open_) return;
  open_ = Period{
      .unsaved = {.since = saved_, .cause = cause}, .began_ns = began_ns, .silence = silence};
}

// With a silence that cost no checkpoint nothing was missing.
void UnsavedWatch::silence_is_over(uint64_t now_ns) {
  if (!open_ || !open_->silence || open_->answered_ns) return;
  if (open_->missed) {
    open_->answered_ns = now_ns;
  } else {
    open_.reset();
  }
}

double UnsavedWatch::Period::ms(uint64_t now_ns) const {
  return ms_between(began_ns, silence ? answered_ns.value_or(now_ns) : now_ns);
}

std::string UnsavedWatch::no_answer() const {
  return fmt::format("ckptd at {} does not answer", options_.socket);
}

std::string UnsavedWatch::cause() const {
  if (silent_) return no_answer();
  return failure_.empty() ? stuck_ : failure_;
}

std::string UnsavedWatch::unsaved_text() const {
  return step_ <= saved_ ? "" : report::unsaved_steps_text(saved_, step_);
}

UnsavedWatch::Look UnsavedWatch::look(const Daemon& daemon, uint64_t now_ns) {
  if (daemon.bytes_written != bytes_written_) progress_ns_ = now_ns;
  bytes_written_ = daemon.bytes_written;
  Look look;
  look_at_silence(daemon, now_ns, look);
  look_at_limits(now_ns, look);
  look_at_end(daemon, now_ns, look);
  return look;
}

void UnsavedWatch::look_at_silence(const Daemon& daemon, uint64_t now_ns, Look& look) {
  if (daemon.silent_ms == 0) {
    if (silent_) look.lines.push_back(fmt::format("ckptd at {} answers again", options_.socket));
    silent_ = false;
    silence_told_.reset();
    return silence_is_over(now_ns);
  }
  if (daemon.silent_ms < kSilentMs || !silence_told_.due(now_ns)) return;
  std::string line = fmt::format("no checkpoint since step {}: {}; retrying", saved_, no_answer());
  if (silent_) {
    line += fmt::format(" (no answer for {}, training is at step {})",
                        report::human_ms(static_cast<double>(daemon.silent_ms)), step_);
  }
  look.lines.push_back(std::move(line));
  silent_ = true;
  silence_told_.told(now_ns);
  open_period(no_answer(), now_ns - std::min(now_ns, daemon.silent_ms * kNanosPerMs),
              /*silence=*/true);
  open_->answered_ns.reset();
  if (saving_) open_->missed = true;
}

std::optional<std::string> UnsavedWatch::over_limit(uint64_t now_ns) const {
  if (step_ <= saved_) return std::nullopt;
  const uint64_t steps = step_ - saved_;
  if (options_.steps_max && steps > *options_.steps_max) {
    return fmt::format("{}, more than the {} of --unsaved-max", ckpt::base::counted(steps, "step"),
                       *options_.steps_max);
  }
  const double ms = ms_between(saved_ns_, now_ns);
  if (options_.ms_max && ms > static_cast<double>(*options_.ms_max)) {
    return fmt::format("{}, more than the {} of --unsaved-max", report::human_ms(ms),
                       report::human_ms(static_cast<double>(*options_.ms_max)));
  }
  return std::nullopt;
}

void UnsavedWatch::look_at_limits(uint64_t now_ns, Look& look) {
  if (saving_ || stopped_) return;
  const std::optional<std::string> over = over_limit(now_ns);
  if (!over || !limit_told_.due(now_ns)) return;
  limit_told_.told(now_ns);
  std::string line = fmt::format("no checkpoint since step {} for {}", saved_, *over);
  if (const std::string why = cause(); !why.empty()) line += ": " + why;
  if (options_.stop) {
    line += "; the ranks save and stop (--on-unsaved stop)";
    stopped_ = true;
    look.verdict = Verdict::kStop;
  }
  look.lines.push_back(std::move(line));
}

double UnsavedWatch::stuck_ms(uint64_t now_ns) const { return ms_between(progress_ns_, now_ns); }

void UnsavedWatch::look_at_end(const Daemon& daemon, uint64_t now_ns, Look& look) {
  if (!saving_ || ended_) return;
  const bool silent = daemon.silent_ms >= kSilentMs;
  if (!end_told_ && (silent || stuck_ms(now_ns) >= kStuckMs)) {
    end_told_ = true;
    look.lines.push_back(fmt::format(
        "saving step {}: {}; waiting at most {} s for it", *saving_,
        silent ? no_answer() : fmt::format("ckptd at {} makes no progress", options_.socket),
        kEndMs / 1'000));
  }
  if (stuck_ms(now_ns) < static_cast<double>(kEndMs)) return;
  ended_ = true;
  stuck_ = fmt::format("ckptd at {} made no progress for {} s", options_.socket, kEndMs / 1'000);
  look.verdict = Verdict::kEnd;
}

// A wait without progress that had begun before the signal ends with it; a save that the signal
// began gets its time.
bool UnsavedWatch::saves_in_vain(const Daemon& daemon, uint64_t asked_ns) const {
  const uint64_t patience_ms = daemon.starting ? kStartsMs : daemon.gone ? kGoneMs : kHangsMs;
  if (daemon.silent_ms >= patience_ms) return true;
  return saving_ && stuck_ms(asked_ns) >= kStuckMs;
}

std::vector<report::Unsaved> UnsavedWatch::periods(uint64_t now_ns) const {
  std::vector<report::Unsaved> all = periods_;
  if (!open_ || (open_->silence && step_ <= open_->unsaved.since)) return all;
  all.push_back(open_->unsaved);
  all.back().until = step_;
  all.back().ms = open_->ms(now_ns);
  return all;
}

}  // namespace moetrain
