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

constexpr uint64_t kLater = UINT64_MAX;  // a clock that is not behind

// Steps that are kept, in the order of the candidates.
Steps kept(const KeepRules& rules, const std::vector<Candidate>& candidates,
           uint64_t now_ns = kLater) {
  const auto reasons = keep_reasons(rules, candidates, now_ns);
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

TEST(Policy, KeepsTheLastN) {
  KeepRules rules;
  rules.last = 2;
  EXPECT_THAT(kept(rules, {at(3, 30), at(2, 20), at(1, 10)}), ElementsAre(3, 2));
  EXPECT_THAT(kept(rules, {at(1, 10)}), ElementsAre(1));
}

// Overlapping snapshots of a lineage may be recorded out of order: step 20 before step 10.
TEST(Policy, TheHighestStepsOfALineageAreLast) {
  std::vector<Candidate> candidates = {at(10, 40), at(20, 30), at(5, 20), at(15, 10)};
  EXPECT_THAT(kept({.last = 1}, candidates), ElementsAre(20));
  EXPECT_THAT(kept({.last = 2}, candidates), ElementsAre(20, 15));
  candidates[0].point.lineage = candidates[2].point.lineage = 2;
  EXPECT_THAT(kept({.last = 2}, candidates), ElementsAre(10, 5)) << "a later lineage is newer";
}

TEST(Policy, DailyKeepsNewestPerDayAndOldest) {
  std::vector<Candidate> candidates;
  for (ckpt::Step step = 12; step > 0; --step) {
    candidates.push_back(at(step, kMonday + step * 8 * kHour));  // three a day
  }
  KeepRules rules;
  rules.daily = 2;
  EXPECT_THAT(kept(rules, candidates), ElementsAre(12, 11));
  rules.daily = 9;
  EXPECT_THAT(kept(rules, candidates), ElementsAre(12, 11, 8, 5, 2, 1));
  EXPECT_THAT(keep_reasons(rules, candidates, kLater).back(), ElementsAre("oldest daily"));
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

TEST(Policy, MonthsAndYearsFollowTheCalendar) {
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
}

// ---- clocks that jump --------------------------------------------------------------------------

std::vector<KeepRules> rules_by_time() {
  std::vector<KeepRules> all(6);
  all[0].within = std::chrono::hours(72);
  all[1].hourly = 3;
  all[2].daily = 3;
  all[3].weekly = 3;
  all[4].monthly = 3;
  all[5].yearly = 3;
  return all;
}

// One commit every eight hours, newest first. Step 6, in the middle, has the date `time_ns`.
std::vector<Candidate> with_date_of_6(uint64_t time_ns) {
  std::vector<Candidate> candidates;
  for (ckpt::Step step = 12; step > 0; --step) {
    candidates.push_back(at(step, step == 6 ? time_ns : kMonday + step * 8 * kHour));
  }
  return candidates;
}

TEST(Policy, FutureDateRemovesNoKeptCommit) {
  const std::vector<Candidate> right = with_date_of_6(kMonday + 48 * kHour);
  const std::vector<Candidate> wrong = with_date_of_6(kMonday + 4000 * kDay);
  for (const KeepRules& rules : rules_by_time()) {
    const Steps now_kept = kept(rules, wrong);
    for (const ckpt::Step step : kept(rules, right)) {
      EXPECT_THAT(now_kept, testing::Contains(step));
    }
    EXPECT_THAT(now_kept, testing::Contains(6)) << "nobody knows how old it is";
  }
}

TEST(Policy, ClockSetBackRemovesNothing) {
  // The newest commit is dated before all others: then these may be of any age.
  std::vector<Candidate> candidates = with_date_of_6(kMonday + 48 * kHour);
  candidates.front().time_ns = kHour;
  for (const KeepRules& rules : rules_by_time()) EXPECT_EQ(kept(rules, candidates).size(), 12u);
}

TEST(Policy, ClockBehindNewestCommitRemovesNothing) {
  std::vector<Candidate> candidates = with_date_of_6(kMonday + 48 * kHour);
  candidates.back().damaged = true;
  const uint64_t newest = candidates.front().time_ns;
  for (const KeepRules& rules : rules_by_time()) {
    EXPECT_LT(kept(rules, candidates, newest).size(), 12u);
    EXPECT_EQ(kept(rules, candidates, newest - 1).size(), 12u);
    ASSERT_NE(dated_after_now(rules, candidates, newest - 1), nullptr);
    EXPECT_EQ(dated_after_now(rules, candidates, newest - 1)->point.step, 12u);
    EXPECT_EQ(dated_after_now(rules, candidates, newest), nullptr);
  }
  KeepRules last;
  last.last = 2;
  EXPECT_THAT(kept(last, candidates, 0), ElementsAre(12, 11)) << "it looks at no date";
}

TEST(Policy, KeepsFirstOfEveryNStepsPerLineage) {
  KeepRules rules;
  rules.every_steps = 1000;
  std::vector<Candidate> candidates;
  for (const ckpt::Step step : {2100, 1500, 1200, 900, 300}) candidates.push_back(at(step, 0));
  EXPECT_THAT(kept(rules, candidates), ElementsAre(2100, 1200, 300));
  EXPECT_THAT(keep_reasons(rules, candidates, kLater).back(),
              ElementsAre("every 1000 steps: the first of steps 0 to 999"));
  candidates.front().point = {2, 1700};
  EXPECT_THAT(kept(rules, candidates), ElementsAre(1700, 1200, 300));
}

TEST(Policy, KeepsBestByMetric) {
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

TEST(Policy, DamagedCommitsCountForTagsOnly) {
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

// Does its date contradict the order of the commits?
bool after_newest(const std::vector<Candidate>& all, size_t which) {
  return all[which].time_ns > all[0].time_ns;
}
bool out_of_order(const std::vector<Candidate>& all, size_t which) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (after_newest(all, i)) continue;
    if (i < which && all[i].time_ns < all[which].time_ns) return true;
    if (i > which && all[i].time_ns > all[which].time_ns) return true;
  }
  return false;
}

// Is this commit kept by a rule that keeps the newest of each of `count` stretches of time? Asks
// of every commit on its own how many stretches begin before it.
bool by_time(const std::vector<Candidate>& all, size_t which, uint32_t count, const char* format) {
  const auto name = [&](const Candidate& candidate) {
    const auto seconds = static_cast<std::time_t>(candidate.time_ns / kSecond);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    char text[64];
    std::strftime(text, sizeof text, format, &parts);
    return std::string(text);
  };
  if (after_newest(all, which)) return true;
  uint32_t stretches = 0;
  std::string newer;
  size_t oldest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!after_newest(all, i) && !out_of_order(all, i)) oldest = i;
  }
  for (size_t i = 0; i <= which; ++i) {
    if (after_newest(all, i)) continue;
    if (out_of_order(all, i)) {
      if (i == which) return stretches < count;
      continue;
    }
    if (stretches > 0 && name(all[i]) == newer) {
      if (i == which) return which == oldest && stretches < count;
      continue;
    }
    newer = name(all[i]);
    if (++stretches > count) return false;
  }
  return true;
}

bool within_of_newest(const std::vector<Candidate>& all, size_t which, uint64_t within) {
  if (after_newest(all, which)) return true;
  for (size_t i = which; i < all.size(); ++i) {
    if (!after_newest(all, i) && all[0].time_ns - all[i].time_ns <= within) return true;
  }
  return false;
}

bool newer_than(const Candidate& other, const Candidate& one) {
  const bool same = other.point.lineage == one.point.lineage;
  return same ? other.point.step > one.point.step : other.point.lineage > one.point.lineage;
}

bool expected(const KeepRules& rules, const std::vector<Candidate>& all, size_t which) {
  const Candidate& candidate = all[which];
  size_t newer = 0;
  for (const Candidate& other : all) newer += newer_than(other, candidate) ? 1 : 0;
  bool keep = newer < rules.last;
  for (const auto& [count, format] :
       {std::pair(rules.hourly, "%Y-%j-%H"), std::pair(rules.daily, "%Y-%j"),
        std::pair(rules.weekly, "%G-%V"), std::pair(rules.monthly, "%Y-%m"),
        std::pair(rules.yearly, "%Y")}) {
    keep = keep || (count > 0 && by_time(all, which, count, format));
  }
  size_t better = 0;
  bool first = true;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == which) continue;
    const double mine = candidate.metrics.at("loss");
    const double other = all[i].metrics.at("loss");
    if (other < mine || (other == mine && newer_than(all[i], candidate))) ++better;
    const bool same =
        rules.every_steps > 0 && all[i].point.lineage == candidate.point.lineage &&
        all[i].point.step / rules.every_steps == candidate.point.step / rules.every_steps;
    if (same && all[i].point.step < candidate.point.step) first = false;
  }
  keep = keep || (rules.every_steps > 0 && first);
  keep = keep || (!rules.best.empty() && better < rules.best[0].count);
  const auto within = static_cast<uint64_t>(rules.within.count());
  keep = keep || (within > 0 && within_of_newest(all, which, within));
  for (const std::string& tag : candidate.tags) {
    keep = keep || std::find(rules.tags.begin(), rules.tags.end(), tag) != rules.tags.end();
  }
  return keep;
}

// Random histories and rules; the clocks of some jump to and fro.
class RandomPolicy {
 public:
  explicit RandomPolicy(uint64_t seed) : random_(seed), jumps_(seed % 2 == 1) {}

  bool jumps() const { return jumps_; }
  uint64_t draw(uint64_t bound) { return random_() % bound; }
  std::vector<Candidate> candidates() {
    std::vector<Candidate> candidates;
    uint64_t time = kMonday + draw(1'000'000) * kSecond;
    std::set<ViewPoint> taken;
    for (uint64_t count = draw(40); count > 0; --count) {
      Candidate candidate = at(draw(60), jumps_ && draw(6) == 0 ? any_time() : time);
      candidate.point.lineage = static_cast<ckpt::LineageId>(1 + draw(3));
      if (!taken.insert(candidate.point).second) continue;
      candidate.metrics["loss"] = static_cast<double>(draw(10));
      if (draw(6) == 0) candidate.tags.push_back(fmt::format("t{}", draw(3)));
      candidates.push_back(std::move(candidate));
      time -= draw(4) == 0 ? draw(60) * kDay : draw(20'000) * kSecond;
    }
    return candidates;
  }
  KeepRules rules() {
    KeepRules rules;
    uint32_t* const counts[] = {&rules.last,   &rules.hourly,  &rules.daily,
                                &rules.weekly, &rules.monthly, &rules.yearly};
    for (uint32_t* one : counts) *one = draw(3) == 0 ? static_cast<uint32_t>(draw(6)) : 0;
    if (draw(3) == 0) rules.within = std::chrono::hours(draw(100));
    if (draw(3) == 0) rules.every_steps = 1 + draw(20);
    if (draw(3) == 0) rules.tags = {"t0"};
    if (draw(3) == 0) rules.best = {{"loss", static_cast<uint32_t>(1 + draw(4)), false}};
    return rules;
  }
  // Years before, years after, or near by.
  uint64_t any_time() {
    const uint64_t spread = draw(2) == 0 ? 4'000 : 4;
    return kMonday + (draw(2) == 0 ? draw(spread) * kDay : 0) - draw(spread) * kDay;
  }

 private:
  std::mt19937_64 random_;
  bool jumps_;
};

uint64_t first_seed() {
  return static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed()) * 1000;
}

TEST(PolicyProperty, EqualsNaiveModelAndIsIdempotent) {
  size_t removed = 0;
  for (uint64_t seed = first_seed(); seed < first_seed() + 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomPolicy random(seed);
    const std::vector<Candidate> candidates = random.candidates();
    const KeepRules rules = random.rules();
    const auto reasons = keep_reasons(rules, candidates, kLater);
    std::vector<Candidate> left;
    for (size_t i = 0; i < candidates.size(); ++i) {
      ASSERT_EQ(!reasons[i].empty(), expected(rules, candidates, i)) << "commit " << i;
      if (!reasons[i].empty()) left.push_back(candidates[i]);
    }
    removed += candidates.size() - left.size();
    // A prune may remove the date that others contradicted; then these are judged like any.
    if (random.jumps()) continue;
    for (const auto& again : keep_reasons(rules, left, kLater)) ASSERT_FALSE(again.empty());
  }
  EXPECT_GT(removed, 500u);
}

// A commit whose date contradicts the order of the others takes no place of theirs.
TEST(PolicyProperty, AWrongDateRemovesNothing) {
  size_t wrong_dates = 0;
  for (uint64_t seed = first_seed(); seed < first_seed() + 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomPolicy random(seed);
    std::vector<Candidate> candidates = random.candidates();
    if (candidates.empty()) continue;
    KeepRules rules = random.rules();
    rules.last = 0;
    rules.every_steps = 0;
    rules.best.clear();
    const Steps before = kept(rules, candidates);
    const size_t place = 1 + random.draw(candidates.size());
    candidates.insert(candidates.begin() + static_cast<std::ptrdiff_t>(place),
                      at(1000, random.any_time()));
    if (!after_newest(candidates, place) && !out_of_order(candidates, place)) continue;
    ++wrong_dates;
    Steps after = kept(rules, candidates);
    std::erase(after, ckpt::Step{1000});
    size_t next = 0;
    for (const ckpt::Step step : before) {
      while (next < after.size() && after[next] != step) ++next;
      ASSERT_LT(next, after.size()) << "step " << step << " is not kept any more";
    }
  }
  EXPECT_GT(wrong_dates, 50u);
}

}  // namespace
}  // namespace ckptd
