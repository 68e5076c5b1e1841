// The rules, one by one, and all of them against a naive model.
#include "ckptd/retention/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <random>
#include <set>

namespace ckptd {
namespace {

using ckpt::KeepRules;
using testing::ElementsAre;
using Steps = std::vector<ckpt::Step>;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kHour = 3'600 * kSecond;
constexpr uint64_t kDay = 24 * kHour;
// 2026-03-02, a Monday, 00:00 UTC.
constexpr uint64_t kMonday = 1'772'409'600 * kSecond;

Candidate at(ckpt::Step step, uint64_t time_ns) {
  Candidate candidate;
  candidate.point = {1, step};
  candidate.time_ns = time_ns;
  return candidate;
}

// Steps that are kept, newest first, of candidates newest first.
Steps kept(const KeepRules& rules, const std::vector<Candidate>& candidates) {
  const auto reasons = keep_reasons(rules, candidates);
  Steps steps;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!reasons[i].empty()) steps.push_back(candidates[i].point.step);
  }
  return steps;
}

TEST(Policy, NoRuleKeepsNothing) {
  EXPECT_TRUE(KeepRules().empty());
  EXPECT_THAT(kept({}, {at(2, kMonday), at(1, kMonday)}), ElementsAre());
}

TEST(Policy, TheLast) {
  KeepRules rules;
  rules.last = 2;
  EXPECT_THAT(kept(rules, {at(3, 30), at(2, 20), at(1, 10)}), ElementsAre(3, 2));
  EXPECT_THAT(kept(rules, {at(1, 10)}), ElementsAre(1));
}

TEST(Policy, TheNewestOfEachDayAndTheOldestOfAll) {
  std::vector<Candidate> candidates;
  for (ckpt::Step step = 12; step > 0; --step) {
    candidates.push_back(at(step, kMonday + step * 8 * kHour));  // three a day
  }
  KeepRules rules;
  rules.daily = 2;
  EXPECT_THAT(kept(rules, candidates), ElementsAre(12, 11));
  rules.daily = 9;
  EXPECT_THAT(kept(rules, candidates), ElementsAre(12, 11, 8, 5, 2, 1));
  EXPECT_THAT(keep_reasons(rules, candidates).back(), ElementsAre("oldest daily"));
}

TEST(Policy, WeeksBeginOnMonday) {
  KeepRules rules;
  rules.weekly = 1;
  const uint64_t sunday = kMonday + 6 * kDay + 23 * kHour;
  EXPECT_THAT(kept(rules, {at(3, sunday), at(2, kMonday)}), ElementsAre(3));
  rules.weekly = 2;
  EXPECT_THAT(kept(rules, {at(3, kMonday), at(2, kMonday - 1), at(1, kMonday - 2)}),
              ElementsAre(3, 2));
}

TEST(Policy, MonthsAndYearsAreThoseOfTheCalendar) {
  // 2024-02-29 12:00, 2024-03-01 12:00, 2025-03-01 12:00.
  const uint64_t leap = 1'709'208'000 * kSecond;
  const std::vector<Candidate> candidates = {at(4, leap + 366 * kDay), at(3, leap + kDay),
                                             at(2, leap), at(1, leap - kDay)};
  KeepRules rules;
  rules.monthly = 3;
  EXPECT_THAT(kept(rules, candidates), ElementsAre(4, 3, 2));
  rules.monthly = 0;
  rules.yearly = 2;
  EXPECT_THAT(kept(rules, candidates), ElementsAre(4, 3));
}

TEST(Policy, WithinCountsFromTheNewest) {
  KeepRules rules;
  rules.within = std::chrono::hours(2);
  EXPECT_THAT(kept(rules, {at(4, 9 * kHour), at(3, 8 * kHour), at(2, 7 * kHour), at(1, kHour)}),
              ElementsAre(4, 3, 2));
  // A clock that was set back.
  EXPECT_THAT(kept(rules, {at(2, kHour), at(1, 9 * kHour)}), ElementsAre(1));
}

TEST(Policy, TheFirstOfEveryNStepsOfEachLineage) {
  KeepRules rules;
  rules.every_steps = 1000;
  std::vector<Candidate> candidates;
  for (const ckpt::Step step : {2100, 1500, 1200, 900, 300}) candidates.push_back(at(step, 0));
  EXPECT_THAT(kept(rules, candidates), ElementsAre(2100, 1200, 300));
  candidates.front().point = {2, 1700};
  EXPECT_THAT(kept(rules, candidates), ElementsAre(1700, 1200, 300));
}

TEST(Policy, TheBestByAMetric) {
  std::vector<Candidate> candidates = {at(5, 0), at(4, 0), at(3, 0), at(2, 0), at(1, 0)};
  const std::vector<double> losses = {2.0, 1.0, 1.0, std::nan(""), 3.0};
  for (size_t i = 0; i < 4; ++i) candidates[i].metrics["loss"] = losses[i];
  KeepRules rules;
  rules.best = {{"loss", 1, false}};
  EXPECT_THAT(kept(rules, candidates), ElementsAre(4)) << "of equal ones the newer";
  rules.best = {{"loss", 5, false}};
  EXPECT_THAT(kept(rules, candidates), ElementsAre(5, 4, 3)) << "nan and missing do not count";
  rules.best = {{"loss", 1, true}};
  EXPECT_THAT(kept(rules, candidates), ElementsAre(5));
}

TEST(Policy, DamagedOnesCountForTagsOnly) {
  std::vector<Candidate> candidates = {at(3, 30), at(2, 20), at(1, 10)};
  candidates[0].damaged = true;
  candidates[0].tags = {"broken"};
  KeepRules rules;
  rules.last = 1;
  EXPECT_THAT(kept(rules, candidates), ElementsAre(2));
  rules.tags = {"broken", "other"};
  EXPECT_THAT(kept(rules, candidates), ElementsAre(3, 2));
  candidates[2].always = {"pinned"};
  EXPECT_THAT(kept(rules, candidates), ElementsAre(3, 2, 1));
}

// ---- against a naive model ---------------------------------------------------------------------

// Is this commit kept by a rule that keeps the newest of each of `count` stretches of time? Asks
// of every commit on its own how many stretches begin before it.
bool by_time(const std::vector<Candidate>& all, size_t which, uint32_t count, const char* format) {
  const auto name = [&](size_t i) {
    const auto seconds = static_cast<std::time_t>(all[i].time_ns / kSecond);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    char text[64];
    std::strftime(text, sizeof text, format, &parts);
    return std::string(text);
  };
  uint32_t stretches = 0;
  std::string newer;
  for (size_t i = 0; i <= which; ++i) {
    if (i > 0 && name(i) == newer) {
      if (i == which) return which + 1 == all.size() && stretches < count;
      continue;
    }
    newer = name(i);
    if (++stretches > count) return false;
  }
  return true;
}

bool expected(const KeepRules& rules, const std::vector<Candidate>& all, size_t which) {
  const Candidate& candidate = all[which];
  bool keep = which < rules.last;
  for (const auto& [count, format] :
       {std::pair(rules.hourly, "%Y-%j-%H"), std::pair(rules.daily, "%Y-%j"),
        std::pair(rules.weekly, "%G-%V"), std::pair(rules.monthly, "%Y-%m"),
        std::pair(rules.yearly, "%Y")}) {
    keep = keep || (count > 0 && by_time(all, which, count, format));
  }
  size_t better = 0;
  bool first = true;
  uint64_t newest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    newest = std::max(newest, all[i].time_ns);
    if (i == which) continue;
    const double mine = candidate.metrics.at("loss");
    const double other = all[i].metrics.at("loss");
    if (other < mine || (other == mine && i < which)) ++better;
    const bool same =
        rules.every_steps > 0 && all[i].point.lineage == candidate.point.lineage &&
        all[i].point.step / rules.every_steps == candidate.point.step / rules.every_steps;
    if (same && all[i].point.step < candidate.point.step) first = false;
  }
  keep = keep || (rules.every_steps > 0 && first);
  keep = keep || (!rules.best.empty() && better < rules.best[0].count);
  const auto within = static_cast<uint64_t>(rules.within.count());
  keep = keep || (within > 0 && newest - candidate.time_ns <= within);
  for (const std::string& tag : candidate.tags) {
    keep = keep || std::find(rules.tags.begin(), rules.tags.end(), tag) != rules.tags.end();
  }
  return keep;
}

TEST(PolicyProperty, EqualsTheNaiveModelAndKeepsTheSameAgain) {
  const auto base = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  size_t removed = 0;
  for (uint64_t seed = base * 1000; seed < base * 1000 + 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t bound) { return random() % bound; };
    std::vector<Candidate> candidates;
    uint64_t time = kMonday + draw(1'000'000) * kSecond;
    std::set<ViewPoint> taken;
    for (uint64_t count = draw(40); count > 0; --count) {
      Candidate candidate = at(draw(60), time);
      candidate.point.lineage = static_cast<ckpt::LineageId>(1 + draw(3));
      if (!taken.insert(candidate.point).second) continue;
      candidate.metrics["loss"] = static_cast<double>(draw(10));
      if (draw(6) == 0) candidate.tags.push_back(fmt::format("t{}", draw(3)));
      candidates.push_back(std::move(candidate));
      time -= draw(4) == 0 ? draw(60) * kDay : draw(20'000) * kSecond;
    }
    KeepRules rules;
    uint32_t* const counts[] = {&rules.last,   &rules.hourly,  &rules.daily,
                                &rules.weekly, &rules.monthly, &rules.yearly};
    for (uint32_t* one : counts) *one = draw(3) == 0 ? static_cast<uint32_t>(draw(6)) : 0;
    if (draw(3) == 0) rules.within = std::chrono::hours(draw(100));
    if (draw(3) == 0) rules.every_steps = 1 + draw(20);
    if (draw(3) == 0) rules.tags = {"t0"};
    if (draw(3) == 0) rules.best = {{"loss", static_cast<uint32_t>(1 + draw(4)), false}};
    const auto reasons = keep_reasons(rules, candidates);
    std::vector<Candidate> left;
    for (size_t i = 0; i < candidates.size(); ++i) {
      ASSERT_EQ(!reasons[i].empty(), expected(rules, candidates, i)) << "commit " << i;
      if (!reasons[i].empty()) left.push_back(candidates[i]);
    }
    removed += candidates.size() - left.size();
    for (const auto& again : keep_reasons(rules, left)) ASSERT_FALSE(again.empty());
  }
  EXPECT_GT(removed, 500u);
}

}  // namespace
}  // namespace ckptd
