#include "trainer/elastic/unsaved_gaps.h"

#include <algorithm>
#include <utility>

#include "trainer/elastic/events.h"

namespace moetrain {

void UnsavedGaps::begins(uint64_t step, uint64_t now_ns) {
  saved_ = step;
  saved_ns_ = now_ns;
  if (misses_.empty()) return;
  // Steps are redone, and their checkpoints are due again.
  Miss first = misses_.begin()->second;
  misses_.clear();
  misses_.emplace(step + 1, std::move(first));
}

void UnsavedGaps::failed(uint64_t step, const std::string& cause, uint64_t now_ns) {
  if (step <= saved_) return;  // reported late, after a newer checkpoint
  misses_.try_emplace(step, Miss{.cause = {}, .at_ns = now_ns}).first->second.cause = cause;
}

void UnsavedGaps::unanswered(uint64_t step, uint64_t since_ns) {
  if (!silence_) silence_ = Silence{.since_ns = since_ns};
  if (step > saved_) misses_.emplace(step, Miss{.cause = {}, .at_ns = since_ns});
}

void UnsavedGaps::silent(uint64_t since_ns, bool missed) {
  // A silence that was answered and kept has delayed or cost a checkpoint. A second silence belongs
  // to the same gap.
  if (!silence_) silence_ = Silence{.since_ns = since_ns};
  silence_->reported = true;
  silence_->missed = silence_->missed || missed;
  silence_->answered = false;
}

void UnsavedGaps::answers() {
  if (!silence_) return;
  if (misses_.empty() && !silence_->missed) {
    silence_.reset();
  } else {
    silence_->answered = true;
  }
}

bool UnsavedGaps::ends_a_row(uint64_t step, uint64_t now_ns) const {
  if (missed_until(step) || (silence_ && silence_->missed)) return true;
  if (step == saved_ || misses_.empty()) return false;
  // Users were told that no checkpoint since saved_ exists: this one ends the gap, though it had
  // been handed over before ckptd fell silent.
  if (silence_ && silence_->reported) return true;
  return ms_between(trouble_ns(UINT64_MAX), now_ns) >= kLateMs;
}

void UnsavedGaps::durable(uint64_t step, uint64_t now_ns) {
  if (step < saved_) return;
  const bool ends = ends_a_row(step, now_ns);
  if (ends) {
    closed_.push_back(gap_until(missed_until(step) ? step : UINT64_MAX, now_ns));
    closed_.back().until = step;
    closed_.back().saved = true;
    // A durable snapshot is an answer, too. It may come before the answer to a heartbeat.
    if (silence_ && (silence_->answered || silence_->reported || silence_->missed)) {
      silence_.reset();
    }
  }
  saved_ = step;
  saved_ns_ = now_ns;
  misses_.erase(misses_.begin(), misses_.upper_bound(step));
  if (ends || misses_.empty()) gap_ns_ = now_ns;
}

std::string UnsavedGaps::failure() const {
  const auto newest = std::ranges::find_if(misses_.rbegin(), misses_.rend(), [](const auto& miss) {
    return !miss.second.cause.empty();
  });
  return newest == misses_.rend() ? "" : newest->second.cause;
}

uint64_t UnsavedGaps::trouble_ns(uint64_t step) const {
  uint64_t began_ns = silence_ ? silence_->since_ns : UINT64_MAX;
  for (const auto& [at, miss] : misses_) {
    if (at > step) break;
    began_ns = std::min(began_ns, miss.at_ns);
  }
  return std::max(began_ns, gap_ns_);
}

report::Unsaved UnsavedGaps::gap_until(uint64_t step, uint64_t now_ns) const {
  const Miss* failed = nullptr;  // the earliest that ckptd answered
  for (const auto& [at, miss] : misses_) {
    if (at > step) break;
    const bool answered = !miss.cause.empty();
    if (answered && (failed == nullptr || miss.at_ns < failed->at_ns)) failed = &miss;
  }
  // A silence that began the gap is its cause while it lasts.
  const bool lasts = silence_ && !silence_->answered;
  const bool silence_first = silence_ && (failed == nullptr || silence_->since_ns <= failed->at_ns);
  const bool by_silence = failed == nullptr || (lasts && silence_first);
  return {.since = saved_,
          .until = step,
          .ms = ms_between(trouble_ns(step), now_ns),
          .cause = by_silence ? no_answer_ : failed->cause};
}

std::vector<report::Unsaved> UnsavedGaps::periods(uint64_t step, uint64_t now_ns,
                                                  const std::string& ended) const {
  std::vector<report::Unsaved> all = closed_;
  const bool failed =
      std::ranges::any_of(misses_, [](const auto& miss) { return !miss.second.cause.empty(); });
  const bool open = failed || (step > saved_ && (silence_ || !misses_.empty()));
  if (open) {
    all.push_back(gap_until(UINT64_MAX, now_ns));
    all.back().until = step;
  } else if (step > saved_ && !ended.empty()) {
    all.push_back(
        {.since = saved_, .until = step, .ms = ms_between(saved_ns_, now_ns), .cause = ended});
  }
  return all;
}

}  // namespace moetrain
