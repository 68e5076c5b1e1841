#include "trainer/elastic/snapshot_troubles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace moetrain {

namespace {

// Time for the rank that knows the cause to report it.
constexpr uint64_t kCauseWithinNs = 2'000'000'000;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Removes a leading "<word> <name>"; the name is a number if `number`. False: `text` is
// unchanged.
bool take_named(std::string_view& text, std::string_view word, bool number) {
  std::string_view rest = text;
  if (!rest.starts_with(word)) return false;
  rest.remove_prefix(word.size());
  const size_t end = std::min(rest.find_first_of(" :"), rest.size());
  if (end == 0 || (number && !std::all_of(rest.begin(), rest.begin() + end, is_digit))) {
    return false;
  }
  text = rest.substr(end);
  return true;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Removes one name or phrase that identifies the snapshot, not the cause.
bool take_prefix(std::string_view& text) {
  constexpr std::array<std::string_view, 4> kPhrases = {
      "the snapshot failed: ", "the last checkpoint could not be saved: ", "beginning a snapshot: ",
      "waiting for a free slab: "};
  for (const std::string_view phrase : kPhrases) {
    if (take(text, phrase)) return true;
  }
  std::string_view rest = text;
  if (take_named(rest, "run ", false) && take_named(rest, " step ", true) && take(rest, ": ")) {
    text = rest;
    return true;
  }
  rest = text;
  if (!take_named(rest, "rank ", true) && !take_named(rest, "step ", true)) return false;
  const bool aborted = take(rest, " aborted it: ") || take(rest, " gave it up: ");  // older ckptd
  if (!aborted && !take(rest, ": ")) return false;
  text = rest;
  return true;
}

// The part of a cause that is constant over steps: no numbers, units of bytes, or parentheses.
std::string without_numbers(std::string_view text) {
  std::string key;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == ')' && depth > 0) --depth;
    if (c == '(') ++depth;
    if (depth > 0 || c == ')') continue;
    if (!is_digit(c)) {
      key += c;
      continue;
    }
    while (at + 1 < text.size() && (is_digit(text[at + 1]) || text[at + 1] == '.')) ++at;
    for (const std::string_view unit : {" B", " KiB", " MiB", " GiB", " TiB"}) {
      if (!text.substr(at + 1).starts_with(unit)) continue;
      at += unit.size();
      break;
    }
    key += '#';
  }
  return key;
}

// Identity of a cause. ckptd words a full disk by what found it, with one detail.
std::string identity(std::string_view cause, ckpt::ErrorDetail detail) {
  if (detail == ckpt::ErrorDetail::kNone) return without_numbers(cause);
  return fmt::format("detail {}", static_cast<int>(detail));
}

}  // namespace

std::string snapshot_cause(std::string_view reason) {
  while (take_prefix(reason)) {
  }
  return std::string(reason);
}

std::string brief_cause(std::string_view cause) {
  return std::string(cause.substr(0, std::min(cause.find(" ("), cause.find("; "))));
}

bool SnapshotTroubles::failed(uint64_t step, const Failure& failure, uint64_t now_ns) {
  std::string cause = snapshot_cause(failure.reason);
  const bool has_cause = cause != kOtherRankFailed;
  if (!has_cause && unanswered_.contains(step)) return false;
  const bool first_of_step = failed_.insert(step).second;
  if (has_cause) {
    without_cause_.erase(step);
    report_cause(step, std::move(cause), failure.detail, now_ns);
  } else if (first_of_step) {
    without_cause_.emplace(step, now_ns);
  }
  return true;
}

// Ranks that failed because of this one may have reported it earlier.
void SnapshotTroubles::unanswered(uint64_t step) {
  unanswered_.insert(step);
  if (without_cause_.erase(step) > 0) failed_.erase(step);
}

// The reported cause stays: it holds until a checkpoint succeeds.
void SnapshotTroubles::rewound() {
  failed_.clear();
  without_cause_.clear();
  unanswered_.clear();
}

void SnapshotTroubles::report_cause(uint64_t step, std::string cause, ckpt::ErrorDetail detail,
                                    uint64_t now_ns) {
  const std::string key = identity(cause, detail);
  cause_ = std::move(cause);
  if (key != key_) {
    key_ = key;
    reported_step_ = step;
    reminder_.reset();
    reminder_.reported(now_ns);
    lines_.push_back(fmt::format("the checkpoint of step {} failed: {}", step, cause_));
  } else if (reminder_.due(now_ns)) {
    reminder_.reported(now_ns);
    lines_.push_back(fmt::format("checkpoints still fail, {} since step {}: {}", failed_.size(),
                                 *failed_.begin(), repeated_cause(cause_)));
  }
}

std::string SnapshotTroubles::repeated_cause(const std::string& cause) const {
  const std::string brief = brief_cause(cause);
  if (brief == cause || without_numbers(cause) != without_numbers(cause_)) return cause;
  return fmt::format("{} (told in full for step {})", brief, reported_step_);
}

// A snapshot begun before the newest failure does not show that the failures are over; only those
// up to the snapshot's own step are over.
void SnapshotTroubles::durable(uint64_t step) {
  unanswered_.erase(unanswered_.begin(), unanswered_.upper_bound(step));
  if (!failed_.empty() && step < *failed_.rbegin()) {
    failed_.erase(failed_.begin(), failed_.upper_bound(step));
    without_cause_.erase(without_cause_.begin(), without_cause_.upper_bound(step));
    return;
  }
  if (!key_.empty()) {
    const std::string failed = failed_.empty() ? ""
                                               : fmt::format("; {} failed since step {}",
                                                             failed_.size(), *failed_.begin());
    lines_.push_back(fmt::format("checkpoints succeed again: step {} is durable{}", step, failed));
  }
  without_cause_.clear();
  failed_.clear();
  cause_.clear();
  key_.clear();
  reminder_.reset();
}

std::vector<std::string> SnapshotTroubles::lines(uint64_t now_ns) {
  for (auto at = without_cause_.begin(); at != without_cause_.end();) {
    if (now_ns < at->second + kCauseWithinNs) {
      ++at;
      continue;
    }
    const uint64_t step = at->first;
    at = without_cause_.erase(at);
    report_cause(step, std::string(kOtherRankFailed), ckpt::ErrorDetail::kNone, now_ns);
  }
  return std::exchange(lines_, {});
}

}  // namespace moetrain
