#include "ckptd/retention/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "formats/base/counted.h"

namespace ckptd {
namespace {

using Reasons = std::vector<std::vector<std::string>>;
namespace chrono = std::chrono;

chrono::sys_seconds time_of(const Candidate& candidate) {
  return chrono::sys_seconds(chrono::seconds(candidate.time_ns / 1'000'000'000));
}
chrono::sys_days day_of(const Candidate& candidate) {
  return chrono::floor<chrono::days>(time_of(candidate));
}

// The number of the hour, day, ... of a commit. Only equality of numbers matters.
int64_t hour(const Candidate& candidate) {
  return chrono::floor<chrono::hours>(time_of(candidate)).time_since_epoch().count();
}
int64_t day(const Candidate& candidate) { return day_of(candidate).time_since_epoch().count(); }
// 1970-01-01 was a Thursday; ISO weeks begin on Monday.
int64_t week(const Candidate& candidate) { return (day(candidate) + 3) / 7; }
int64_t month(const Candidate& candidate) {
  const chrono::year_month_day date(day_of(candidate));
  return int64_t{static_cast<int>(date.year())} * 12 + static_cast<unsigned>(date.month());
}
int64_t year(const Candidate& candidate) {
  return static_cast<int>(chrono::year_month_day(day_of(candidate)).year());
}

// Commits that count for rules, by their index among the candidates, in the same order.
using Counting = std::vector<size_t>;

void keep_last(uint32_t count, const std::vector<Candidate>& candidates, Counting counting,
               Reasons& reasons) {
  std::ranges::sort(counting, is_newer, [&](size_t i) { return candidates[i].point; });
  for (size_t i = 0; i < counting.size() && i < count; ++i) {
    reasons[counting[i]].emplace_back("last");
  }
}

// Whether the date of a commit agrees with the order of the commits.
enum class Dated : uint8_t { kInOrder, kOutOfOrder, kAfterNewest };

// By candidate; meaningless for candidates that do not count.
std::vector<Dated> judge_dates(const std::vector<Candidate>& candidates, const Counting& counting) {
  std::vector<Dated> dated(candidates.size(), Dated::kInOrder);
  if (counting.empty()) return dated;
  const uint64_t newest = candidates[counting.front()].time_ns;
  uint64_t earliest = newest;  // of the newer ones
  for (const size_t i : counting) {
    const uint64_t time = candidates[i].time_ns;
    if (time > newest) {
      dated[i] = Dated::kAfterNewest;
    } else if (time > earliest) {
      dated[i] = Dated::kOutOfOrder;
    }
    earliest = std::min(earliest, time);
  }
  uint64_t latest = 0;  // of the older ones, except dates after the newest
  for (auto i = counting.rbegin(); i != counting.rend(); ++i) {
    if (dated[*i] == Dated::kAfterNewest) continue;
    if (candidates[*i].time_ns < latest) dated[*i] = Dated::kOutOfOrder;
    latest = std::max(latest, candidates[*i].time_ns);
  }
  return dated;
}

void keep_buckets(uint32_t count, const char* name, int64_t (*bucket)(const Candidate&),
                  const std::vector<Candidate>& candidates, const Counting& counting,
                  const std::vector<Dated>& dated, Reasons& reasons) {
  const auto judged = [&](size_t i) { return dated[i] == Dated::kInOrder; };
  const auto oldest = std::find_if(counting.rbegin(), counting.rend(), judged);
  std::optional<int64_t> newer;  // the last kept bucket
  for (auto i = counting.begin(); i != counting.end() && count > 0; ++i) {
    if (dated[*i] == Dated::kOutOfOrder) {
      reasons[*i].push_back(fmt::format("{}: its date is out of order", name));
    }
    if (!judged(*i)) continue;
    const int64_t here = bucket(candidates[*i]);
    if (newer != here) {
      reasons[*i].emplace_back(name);
      newer = here;
      --count;
    } else if (*i == *oldest) {
      reasons[*i].push_back(fmt::format("oldest {}", name));
    }
  }
}

void keep_within(chrono::nanoseconds within, const std::vector<Candidate>& candidates,
                 const Counting& counting, Reasons& reasons) {
  if (within.count() == 0 || counting.empty()) return;
  const uint64_t newest = candidates[counting.front()].time_ns;
  const auto oldest = std::find_if(counting.rbegin(), counting.rend(), [&](size_t i) {
    const uint64_t time = candidates[i].time_ns;
    return time <= newest && newest - time <= static_cast<uint64_t>(within.count());
  });
  for (const size_t i : counting) {
    if (i <= *oldest) reasons[i].emplace_back("within");
  }
}

// Commits that rules by time keep, because their date must be wrong.
void keep_dated_after_newest(const Counting& counting, const std::vector<Dated>& dated,
                             Reasons& reasons) {
  for (const size_t i : counting) {
    if (dated[i] == Dated::kAfterNewest) {
      reasons[i].emplace_back("dated after the newest commit");
    }
  }
}

void keep_by_time(const ckpt::KeepRules& rules, const std::vector<Candidate>& candidates,
                  const Counting& counting, Reasons& reasons) {
  const std::vector<Dated> dated = judge_dates(candidates, counting);
  const auto buckets = [&](uint32_t count, const char* name, int64_t (*bucket)(const Candidate&)) {
    keep_buckets(count, name, bucket, candidates, counting, dated, reasons);
  };
  buckets(rules.hourly, "hourly", hour);
  buckets(rules.daily, "daily", day);
  buckets(rules.weekly, "weekly", week);
  buckets(rules.monthly, "monthly", month);
  buckets(rules.yearly, "yearly", year);
  keep_within(rules.within, candidates, counting, reasons);
  if (rules.by_time()) keep_dated_after_newest(counting, dated, reasons);
}

void keep_every(uint64_t steps, const std::vector<Candidate>& candidates, const Counting& counting,
                Reasons& reasons) {
  if (steps == 0) return;
  std::map<std::pair<ckpt::LineageId, uint64_t>, size_t> first;
  for (const size_t i : counting) {
    const ViewPoint& point = candidates[i].point;
    const auto [slot, inserted] = first.try_emplace({point.lineage, point.step / steps}, i);
    if (!inserted && point.step < candidates[slot->second].point.step) slot->second = i;
  }
  for (const auto& [stretch, i] : first) {
    const uint64_t begin = stretch.second * steps;
    const uint64_t end = begin + std::min(steps - 1, UINT64_MAX - begin);
    reasons[i].push_back(fmt::format("every {}: the first of steps {} to {}",
                                     ckpt::base::counted(steps, "step"), begin, end));
  }
}

void keep_best(const ckpt::KeepRules::Best& rule, const std::vector<Candidate>& candidates,
               const Counting& counting, Reasons& reasons) {
  std::vector<std::pair<double, size_t>> values;
  values.reserve(counting.size());
  for (const size_t i : counting) {
    const auto metric = candidates[i].metrics.find(rule.metric);
    if (metric == candidates[i].metrics.end() || std::isnan(metric->second)) continue;
    values.emplace_back(rule.highest ? -metric->second : metric->second, i);
  }
  std::ranges::sort(values, [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    return is_newer(candidates[a.second].point, candidates[b.second].point);
  });
  for (size_t i = 0; i < values.size() && i < rule.count; ++i) {
    reasons[values[i].second].push_back(fmt::format("best {}", rule.metric));
  }
}

void keep_tags(const std::vector<std::string>& tags, const std::vector<Candidate>& candidates,
               Reasons& reasons) {
  const std::set<std::string> wanted(tags.begin(), tags.end());
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (const std::string& tag : candidates[i].tags) {
      if (wanted.contains(tag)) reasons[i].push_back(fmt::format("tag {}", tag));
    }
  }
}

}  // namespace

Reasons keep_reasons(const ckpt::KeepRules& rules, const std::vector<Candidate>& candidates,
                     uint64_t now_ns) {
  Reasons reasons(candidates.size());
  Counting counting;
  counting.reserve(candidates.size());
  const bool clock_is_behind = dated_after_now(rules, candidates, now_ns) != nullptr;
  for (size_t i = 0; i < candidates.size(); ++i) {
    reasons[i] = candidates[i].always;
    if (!candidates[i].damaged) counting.push_back(i);
    if (clock_is_behind) reasons[i].emplace_back("the clock is before the newest commit");
  }
  keep_last(rules.last, candidates, counting, reasons);
  if (!clock_is_behind) keep_by_time(rules, candidates, counting, reasons);
  keep_tags(rules.tags, candidates, reasons);
  keep_every(rules.every_steps, candidates, counting, reasons);
  for (const auto& best : rules.best) keep_best(best, candidates, counting, reasons);
  return reasons;
}

const Candidate* dated_after_now(const ckpt::KeepRules& rules,
                                 const std::vector<Candidate>& candidates, uint64_t now_ns) {
  if (!rules.by_time()) return nullptr;
  const auto newest =
      std::ranges::find_if(candidates, [](const auto& candidate) { return !candidate.damaged; });
  return newest != candidates.end() && newest->time_ns > now_ns ? &*newest : nullptr;
}

}  // namespace ckptd
