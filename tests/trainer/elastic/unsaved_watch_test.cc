#include "trainer/elastic/unsaved_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Verdict = UnsavedWatch::Verdict;

constexpr uint64_t kSecondNs = 1'000'000'000;

class UnsavedWatchTest : public testing::Test {
 protected:
  static UnsavedOptions options() { return {.socket = "/s"}; }
  static UnsavedWatch::Daemon silent(uint64_t ms) { return {.silent_ms = ms}; }
  // Looks every 250 ms from one second to another at a ckptd that fell silent at `since`.
  std::vector<std::string> poll_while_silent(UnsavedWatch& watch, uint64_t since, uint64_t from,
                                             uint64_t to) {
    std::vector<std::string> lines;
    for (uint64_t ms = from * 1'000; ms < to * 1'000; ms += 250) {
      const auto finding = watch.poll(silent(ms - since * 1'000), ms * 1'000'000);
      lines.insert(lines.end(), finding.lines.begin(), finding.lines.end());
      if (finding.verdict != Verdict::kContinue) verdicts_.push_back(finding.verdict);
    }
    return lines;
  }
  std::vector<Verdict> verdicts_;
};

TEST_F(UnsavedWatchTest, SilenceIsReportedWithinTwoSecondsThenRarely) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(25);
  watch.durable(20, 9 * kSecondNs);
  EXPECT_THAT(poll_while_silent(watch, 10, 10, 12),
              ElementsAre("no checkpoint since step 20: ckptd at /s does not answer; retrying"));
  watch.stepped(500);
  const auto lines = poll_while_silent(watch, 10, 12, 70);
  ASSERT_EQ(lines.size(), 3u) << "after 4, 8 and 16 more seconds, the next after 32";
  for (const std::string& line : lines) {
    EXPECT_THAT(line, HasSubstr("no checkpoint since step 20: ckptd at /s does not answer; "
                                "retrying (no answer for "));
    EXPECT_THAT(line, HasSubstr("training is at step 500)"));
  }
  EXPECT_THAT(watch.poll({}, 70 * kSecondNs).lines, ElementsAre("ckptd at /s answers again"));
  EXPECT_THAT(watch.poll({}, 71 * kSecondNs).lines, IsEmpty());
  EXPECT_THAT(verdicts_, IsEmpty()) << "training goes on";
}

TEST_F(UnsavedWatchTest, ReportHasThePeriodWithoutACheckpoint) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(25);
  watch.durable(20, 9 * kSecondNs);
  (void)poll_while_silent(watch, 10, 10, 20);
  watch.unanswered(25, 12 * kSecondNs);
  watch.stepped(40);
  auto periods = watch.periods(20 * kSecondNs);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_EQ(periods[0].since, 20u);
  EXPECT_EQ(periods[0].until, 40u);
  EXPECT_FALSE(periods[0].saved);
  EXPECT_DOUBLE_EQ(periods[0].ms, 10'000);
  EXPECT_EQ(watch.unsaved_text(), "steps 21 to 40 are in no checkpoint");
  watch.durable(45, 22 * kSecondNs);
  periods = watch.periods(30 * kSecondNs);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_EQ(periods[0].until, 45u);
  EXPECT_TRUE(periods[0].saved);
  EXPECT_DOUBLE_EQ(periods[0].ms, 12'000);
  EXPECT_EQ(periods[0].cause, "ckptd at /s does not answer");
  EXPECT_EQ(watch.unsaved_text(), "");
}

TEST_F(UnsavedWatchTest, SilenceThatCostNoCheckpointIsNoPeriod) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(10);
  (void)poll_while_silent(watch, 10, 10, 12);
  EXPECT_EQ(watch.periods(12 * kSecondNs).size(), 1u) << "while it lasts";
  (void)watch.poll({}, 12 * kSecondNs);
  EXPECT_THAT(watch.periods(13 * kSecondNs), IsEmpty());
  watch.durable(1'000, 7'200 * kSecondNs);
  EXPECT_THAT(watch.periods(7'200 * kSecondNs), IsEmpty());
}

// ckptd answers again, and its slow disk needs much longer for the next checkpoint.
TEST_F(UnsavedWatchTest, PeriodOfASilenceEndsWithACheckpoint) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(10);
  (void)poll_while_silent(watch, 10, 10, 12);
  watch.unanswered(10, 12 * kSecondNs);
  (void)watch.poll({}, 18 * kSecondNs);
  auto periods = watch.periods(20 * kSecondNs);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_DOUBLE_EQ(periods[0].ms, 10'000) << "nothing is durable yet";
  watch.durable(15, 34 * kSecondNs);
  periods = watch.periods(34 * kSecondNs);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_DOUBLE_EQ(periods[0].ms, 24'000);
  EXPECT_EQ(periods[0].cause, "ckptd at /s does not answer");
}

TEST_F(UnsavedWatchTest, PeriodOfTwoSilencesBeginsWithTheFirst) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(10);
  watch.saving(10, 10 * kSecondNs);
  (void)poll_while_silent(watch, 11, 11, 14);
  (void)watch.poll({}, 15 * kSecondNs);
  (void)poll_while_silent(watch, 20, 20, 24);
  watch.durable(10, 30 * kSecondNs);
  const auto periods = watch.periods(30 * kSecondNs);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_DOUBLE_EQ(periods[0].ms, 19'000);
}

TEST_F(UnsavedWatchTest, FailureIsTheCauseAgainAfterASilence) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(10);
  watch.failed(5, "disk full", 2 * kSecondNs);
  (void)poll_while_silent(watch, 10, 10, 12);
  EXPECT_EQ(watch.cause(), "ckptd at /s does not answer");
  (void)watch.poll({}, 12 * kSecondNs);
  EXPECT_EQ(watch.cause(), "disk full");
  const auto periods = watch.periods(20 * kSecondNs);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_EQ(periods[0].cause, "disk full");
  EXPECT_DOUBLE_EQ(periods[0].ms, 18'000);
  watch.durable(10, 21 * kSecondNs);
  EXPECT_EQ(watch.cause(), "");
}

TEST_F(UnsavedWatchTest, EachPeriodHasItsOwnTimeAndCause) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(160);
  watch.failed(20, "first cause", 10 * kSecondNs);
  watch.failed(140, "second cause", 66 * kSecondNs);
  watch.durable(125, 68 * kSecondNs);
  watch.failed(145, "third cause", 70 * kSecondNs);
  watch.durable(130, 71 * kSecondNs);
  watch.durable(135, 72 * kSecondNs);
  watch.durable(150, 78 * kSecondNs);
  const auto periods = watch.periods(80 * kSecondNs);
  ASSERT_EQ(periods.size(), 2u) << "nothing was missed from 125 to 135";
  EXPECT_EQ(periods[0].since, 0u);
  EXPECT_EQ(periods[0].until, 125u);
  EXPECT_DOUBLE_EQ(periods[0].ms, 58'000);
  EXPECT_EQ(periods[0].cause, "first cause");
  EXPECT_EQ(periods[1].since, 135u);
  EXPECT_EQ(periods[1].until, 150u);
  EXPECT_DOUBLE_EQ(periods[1].ms, 10'000) << "checkpoints after step 135 failed all that time";
  EXPECT_EQ(periods[1].cause, "second cause");
  EXPECT_TRUE(periods[1].saved);
}

TEST_F(UnsavedWatchTest, ReportMatchesLoggedPeriod) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.durable(20, 9 * kSecondNs);
  watch.stepped(35);
  EXPECT_THAT(poll_while_silent(watch, 10, 10, 12), ElementsAre(HasSubstr("since step 20: ckptd")));
  watch.unanswered(35, 12 * kSecondNs);
  watch.stepped(123);
  (void)watch.poll({}, 15 * kSecondNs);
  watch.durable(30, 16 * kSecondNs);  // handed over before the silence
  watch.durable(123, 18 * kSecondNs);
  const auto periods = watch.periods(20 * kSecondNs);
  ASSERT_EQ(periods.size(), 2u);
  EXPECT_EQ(periods[0].since, 20u) << "as the line said";
  EXPECT_EQ(periods[0].until, 30u);
  EXPECT_DOUBLE_EQ(periods[0].ms, 6'000);
  EXPECT_EQ(periods[1].since, 30u);
  EXPECT_EQ(periods[1].until, 123u);
  EXPECT_DOUBLE_EQ(periods[1].ms, 2'000);
  for (const auto& period : periods) EXPECT_EQ(period.cause, "ckptd at /s does not answer");
}

// A checkpoint that was handed over before the silence is durable at its end, before a heartbeat
// has its answer.
TEST_F(UnsavedWatchTest, DurableCheckpointEndsLoggedPeriodBeforeAnswer) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.durable(50, 9 * kSecondNs);
  watch.stepped(62);
  EXPECT_THAT(poll_while_silent(watch, 10, 10, 12), ElementsAre(HasSubstr("since step 50: ckptd")));
  watch.unanswered(70, 12 * kSecondNs);
  watch.stepped(176);
  watch.durable(60, 19 * kSecondNs);
  (void)watch.poll({}, 19 * kSecondNs + 1'000'000);
  watch.durable(177, 20 * kSecondNs);
  watch.durable(187, 21 * kSecondNs);
  const auto periods = watch.periods(30 * kSecondNs);
  ASSERT_EQ(periods.size(), 2u);
  EXPECT_EQ(periods[0].since, 50u) << "as the line said";
  EXPECT_EQ(periods[0].until, 60u);
  EXPECT_DOUBLE_EQ(periods[0].ms, 9'000);
  EXPECT_EQ(periods[1].since, 60u);
  EXPECT_EQ(periods[1].until, 177u);
  EXPECT_DOUBLE_EQ(periods[1].ms, 1'000);
  for (const auto& period : periods) {
    EXPECT_TRUE(period.saved);
    EXPECT_EQ(period.cause, "ckptd at /s does not answer");
  }
}

// A disk so slow that checkpoints fail while the first one is written.
TEST_F(UnsavedWatchTest, PeriodsCoverAllTheTimeThatCheckpointsFail) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(190);
  watch.failed(20, "no room", 11 * kSecondNs);
  watch.failed(25, "no room", 30 * kSecondNs);
  watch.durable(15, 58 * kSecondNs);
  watch.durable(15, 58 * kSecondNs);  // another rank's part
  watch.durable(190, 74 * kSecondNs);
  const auto periods = watch.periods(80 * kSecondNs);
  ASSERT_EQ(periods.size(), 2u);
  EXPECT_EQ(periods[0].since, 0u);
  EXPECT_EQ(periods[0].until, 15u);
  EXPECT_DOUBLE_EQ(periods[0].ms, 47'000);
  EXPECT_EQ(periods[1].since, 15u);
  EXPECT_EQ(periods[1].until, 190u);
  EXPECT_DOUBLE_EQ(periods[1].ms, 16'000);
  for (const auto& period : periods) EXPECT_EQ(period.cause, "no room");
}

TEST_F(UnsavedWatchTest, EachGroupReportsStalledLastCheckpoint) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(30);
  for (const uint64_t at : {10, 40}) {
    watch.saving(30, at * kSecondNs);
    EXPECT_THAT(watch.poll({}, (at + 6) * kSecondNs).lines,
                ElementsAre(HasSubstr("makes no progress; waiting at most 60 s")));
    watch.membership_changed();
  }
}

TEST_F(UnsavedWatchTest, StepLimitWarnsAndContinues) {
  UnsavedOptions limited = options();
  limited.steps_max = 10;
  UnsavedWatch watch(limited);
  watch.begins(0, kSecondNs);
  watch.stepped(10);
  EXPECT_THAT(watch.poll({}, 2 * kSecondNs).lines, IsEmpty());
  watch.stepped(11);
  const auto finding = watch.poll({}, 3 * kSecondNs);
  EXPECT_THAT(finding.lines, ElementsAre(HasSubstr("no checkpoint since step 0 for 11 steps, more "
                                                   "than the 10 of --unsaved-max")));
  EXPECT_EQ(finding.verdict, Verdict::kContinue);
  EXPECT_THAT(watch.poll({}, 4 * kSecondNs).lines, IsEmpty());
  EXPECT_EQ(watch.poll({}, 9 * kSecondNs).lines.size(), 1u);
  watch.durable(11, 10 * kSecondNs);
  EXPECT_THAT(watch.poll({}, 60 * kSecondNs).lines, IsEmpty());
}

TEST_F(UnsavedWatchTest, TimeLimitStopsOnce) {
  UnsavedOptions limited = options();
  limited.ms_max = 5'000;
  limited.stop = true;
  UnsavedWatch watch(limited);
  watch.begins(0, kSecondNs);
  EXPECT_EQ(watch.poll({}, 60 * kSecondNs).verdict, Verdict::kContinue) << "nothing is unsaved";
  watch.stepped(1);
  EXPECT_EQ(watch.poll({}, 60 * kSecondNs).verdict, Verdict::kStop);
  EXPECT_EQ(watch.poll({}, 90 * kSecondNs).verdict, Verdict::kContinue);
}

TEST_F(UnsavedWatchTest, LastCheckpointTimesOutWithoutProgress) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(30);
  watch.saving(30, 10 * kSecondNs);
  // A slow disk that gets on is waited for.
  for (uint64_t at = 10; at < 200; at += 5) {
    const auto finding = watch.poll({.bytes_written = at}, at * kSecondNs);
    EXPECT_EQ(finding.verdict, Verdict::kContinue) << at;
  }
  std::vector<std::string> lines;
  for (uint64_t at = 200; at < 255; ++at) {
    const auto finding = watch.poll({.bytes_written = 195}, at * kSecondNs);
    EXPECT_EQ(finding.verdict, Verdict::kContinue) << at;
    lines.insert(lines.end(), finding.lines.begin(), finding.lines.end());
  }
  EXPECT_THAT(lines, ElementsAre("saving step 30: ckptd at /s makes no progress; waiting at most "
                                 "60 s for it"));
  EXPECT_EQ(watch.poll({.bytes_written = 195}, 256 * kSecondNs).verdict, Verdict::kEnd);
}

TEST_F(UnsavedWatchTest, SignalShortensReportedWait) {
  const auto lines_of = [&](UnsavedWatch::Daemon daemon) {
    UnsavedWatch watch(options());
    watch.begins(0, kSecondNs);
    watch.stepped(5);
    watch.saving(5, 10 * kSecondNs);
    return watch.poll(daemon, 12 * kSecondNs).lines;
  };
  UnsavedWatch::Daemon hangs = silent(1'500);
  EXPECT_THAT(lines_of(hangs), Contains(HasSubstr("does not answer; waiting at most 60 s for it")));
  hangs.stop_asked = true;
  EXPECT_THAT(lines_of(hangs), Contains(HasSubstr("does not answer; waiting at most 2 s for it")));
  hangs.starting = true;
  EXPECT_THAT(lines_of(hangs), Contains(HasSubstr("does not answer; waiting at most 5 s for it")));
}

TEST_F(UnsavedWatchTest, SilentDaemonEndsWaitAfterSignal) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(5);
  EXPECT_FALSE(watch.cannot_save({}, 2 * kSecondNs));
  EXPECT_FALSE(watch.cannot_save(silent(1'000), 2 * kSecondNs)) << "it may be busy";
  EXPECT_TRUE(watch.cannot_save(silent(2'000), 2 * kSecondNs));
  EXPECT_TRUE(watch.cannot_save({.silent_ms = 800, .gone = true}, 2 * kSecondNs));
  EXPECT_FALSE(watch.cannot_save({.silent_ms = 800, .gone = true, .starting = true}, kSecondNs));
  // A wait that stood still before the signal ends with it; a save that it began does not.
  watch.saving(5, 10 * kSecondNs);
  EXPECT_FALSE(watch.cannot_save({}, 10 * kSecondNs));
  EXPECT_TRUE(watch.cannot_save({}, 20 * kSecondNs));
}

TEST_F(UnsavedWatchTest, RollbackCountsFromTheRestoredStep) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(50);
  watch.durable(40, 2 * kSecondNs);
  watch.begins(20, 3 * kSecondNs);
  EXPECT_EQ(watch.unsaved_text(), "");
  watch.stepped(22);
  EXPECT_EQ(watch.unsaved_text(), "steps 21 to 22 are in no checkpoint");
  EXPECT_EQ(watch.saved_step(), 20u);
}

TEST_F(UnsavedWatchTest, RunThatEndsEarlyNamesItsUnsavedSteps) {
  UnsavedWatch watch(options());
  watch.begins(0, kSecondNs);
  watch.stepped(7);
  watch.durable(6, 2 * kSecondNs);
  EXPECT_TRUE(watch.periods(5 * kSecondNs).empty()) << "the next checkpoint is not due";
  const auto periods = watch.periods(5 * kSecondNs, "the run ended: rank 1 is lost");
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_EQ(periods[0].since, 6u);
  EXPECT_EQ(periods[0].until, 7u);
  EXPECT_EQ(periods[0].ms, 3'000);
  EXPECT_EQ(periods[0].cause, "the run ended: rank 1 is lost");
  EXPECT_FALSE(periods[0].saved);
  watch.failed(7, "EIO", 5 * kSecondNs);
  ASSERT_EQ(watch.periods(6 * kSecondNs, "the run ended").size(), 1u) << "a period covers it";
  EXPECT_EQ(watch.periods(6 * kSecondNs, "the run ended")[0].cause, "EIO");
  watch.durable(7, 7 * kSecondNs);
  EXPECT_EQ(watch.periods(8 * kSecondNs, "the run ended").size(), 1u) << "all is saved";
}

}  // namespace
}  // namespace moetrain
