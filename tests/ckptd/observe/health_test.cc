// Health: conditions begin, change their cause and end, and the texts made of them.
#include "ckptd/observe/health.h"

#include <gmock/gmock.h>

#include "ckptd/observe/health_text.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;
using Change = Health::Change;

constexpr uint64_t kSecond = 1'000'000'000;

Fault full(const std::string& kind, const std::string& cause = "disk full: 3 B are left") {
  return {.cause = cause, .remedy = "delete commits", .kind = kind};
}

TEST(Health, ConditionBeginsOnceAndEndsOnce) {
  Health health;
  EXPECT_TRUE(health.ok());
  EXPECT_EQ(health.set(Condition::kDiskFull, std::nullopt, 1), Change::kNone);
  EXPECT_EQ(health.set(Condition::kDiskFull, full("a"), 2), Change::kBegan);
  EXPECT_EQ(health.set(Condition::kDiskFull, full("a", "disk full: 2 B are left"), 3),
            Change::kNone);
  EXPECT_EQ(health.held(Condition::kDiskFull)->since_ns, 2u);
  EXPECT_THAT(health.held(Condition::kDiskFull)->fault.cause, HasSubstr("2 B")) << "the newest";
  EXPECT_EQ(health.set(Condition::kDiskFull, full("b"), 4), Change::kCauseChanged);
  EXPECT_EQ(health.times_begun(Condition::kDiskFull), 1u);
  EXPECT_EQ(health.set(Condition::kDiskFull, std::nullopt, 5), Change::kEnded);
  EXPECT_TRUE(health.ok());
}

TEST(Health, OnlySomeConditionsStopSaving) {
  Health health;
  health.set(Condition::kDamagedData, full("a"), 1);
  health.set(Condition::kDiskSlow, full("a"), 1);
  health.set(Condition::kSnapshotsFailing, full("a"), 1);
  health.set(Condition::kUncheckedData, full("a"), 1);
  EXPECT_FALSE(health.ok());
  EXPECT_TRUE(health.can_save());
  for (const Condition condition : {Condition::kDiskFull, Condition::kWritesFailing,
                                    Condition::kCatalogUnreadable, Condition::kJournalClosed}) {
    health.set(condition, full("a"), 1);
    EXPECT_FALSE(health.can_save()) << condition_name(condition);
    EXPECT_EQ(health.worst(), health.held(condition)) << condition_name(condition);
    health.set(condition, std::nullopt, 1);
    EXPECT_TRUE(health.can_save()) << condition_name(condition);
  }
}

TEST(Health, LinesNameCauseAgeAndRemedy) {
  Health health;
  EXPECT_EQ(health_lines(health, 0), "");
  health.set(Condition::kDiskFull, full("a"), 10 * kSecond);
  EXPECT_EQ(health_lines(health, 75 * kSecond),
            "disk_full for 1 min 5 s: disk full: 3 B are left; delete commits\n");
  EXPECT_THAT(health_lines(health, 9 * kSecond), HasSubstr("for 0.0 s")) << "a clock set back";
}

TEST(Health, MetricsHaveEveryCondition) {
  Health health;
  health.set(Condition::kJournalClosed, full("a"), 1);
  MetricsText text;
  add_health(text, health);
  EXPECT_THAT(text.text(), HasSubstr("ckptd_condition{name=\"journal_closed\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("ckptd_condition{name=\"disk_full\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("ckptd_condition_begun_total{name=\"journal_closed\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("ckptd_can_save 0\n"));
}

}  // namespace
}  // namespace ckptd
