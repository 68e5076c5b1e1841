#include "ckptd/retention/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

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

// The number of the hour, day, ... that a commit lies in. Only equality counts.
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

// Commits that count for rules, newest first, by their index among the candidates.
using Counting = std::vector<size_t>;

void keep_last(uint32_t count, const Counting& counting, Reasons& reasons) {
  for (size_t i = 0; i < counting.size() && i < count; ++i) {
    reasons[counting[i]].emplace_back("last");
  }
}

void keep_buckets(uint32_t count, const char* name, int64_t (*bucket)(const Candidate&),
                  const std::vector<Candidate>& candidates, const Counting& counting,
                  Reasons& reasons) {
  std::optional<int64_t> newer;  // the bucket that was kept last
  for (size_t i = 0; i < counting.size() && count > 0; ++i) {
    const int64_t here = bucket(candidates[counting[i]]);
    const bool oldest = i + 1 == counting.size();
    if (newer == here && !oldest) continue;
    reasons[counting[i]].push_back(newer == here ? fmt::format("oldest {}", name) : name);
    newer = here;
    --count;
  }
}

void keep_within(chrono::nanoseconds within, const std::vector<Candidate>& candidates,
                 const Counting& counting, Reasons& reasons) {
  if (within.count() == 0 || counting.empty()) return;
  // Clocks are set back at times: the newest is the one with the latest time.
  uint64_t newest = 0;
  for (const size_t i : counting) newest = std::max(newest, candidates[i].time_ns);
  for (const size_t i : counting) {
    if (newest - candidates[i].time_ns <= static_cast<uint64_t>(within.count())) {
      reasons[i].emplace_back("within");
    }
  }
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
  for (const auto& [stretch, i] : first) reasons[i].push_back(fmt::format("every {} steps", steps));
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
  std::sort(values.begin(), values.end());  // a smaller index is a newer commit
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

Reasons keep_reasons(const ckpt::KeepRules& rules, const std::vector<Candidate>& candidates) {
  Reasons reasons(candidates.size());
  Counting counting;
  counting.reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    reasons[i] = candidates[i].always;
    if (!candidates[i].damaged) counting.push_back(i);
  }
  keep_last(rules.last, counting, reasons);
  keep_buckets(rules.hourly, "hourly", hour, candidates, counting, reasons);
  keep_buckets(rules.daily, "daily", day, candidates, counting, reasons);
  keep_buckets(rules.weekly, "weekly", week, candidates, counting, reasons);
  keep_buckets(rules.monthly, "monthly", month, candidates, counting, reasons);
  keep_buckets(rules.yearly, "yearly", year, candidates, counting, reasons);
  keep_within(rules.within, candidates, counting, reasons);
  keep_tags(rules.tags, candidates, reasons);
  keep_every(rules.every_steps, candidates, counting, reasons);
  for (const auto& best : rules.best) keep_best(best, candidates, counting, reasons);
  return reasons;
}

}  // namespace ckptd
