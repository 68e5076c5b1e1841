// Distinguishes ranks that hang from ranks that only wait.
#include "trainer/elastic/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    for (uint32_t rank = 0; rank < 3; ++rank) watchdog_.started(rank, now_);
  }
  void say(EventBody body, uint32_t rank, uint64_t epoch = 0) {
    watchdog_.add(
        {.header = {.rank = rank, .time_ns = ++now_, .epoch = epoch}, .body = std::move(body)});
  }
  void form(uint64_t epoch, const std::vector<uint32_t>& ranks = {0, 1, 2}) {
    for (const uint32_t rank : ranks) say(JoiningEvent{}, rank);
    for (const uint32_t rank : ranks) say(ConnectingEvent{}, rank, epoch);
    for (const uint32_t rank : ranks) say(TrainingEvent{}, rank, epoch);
  }
  std::vector<uint32_t> hanging_after(uint64_t seconds) {
    now_ += seconds * kSecond;
    std::vector<uint32_t> ranks;
    for (const Watchdog::Hang& hang : watchdog_.hanging(now_)) {
      ranks.push_back(hang.rank);
      last_words_ = hang.reason;
    }
    return ranks;
  }
  uint64_t now_ = kSecond;
  std::string last_words_;
  Watchdog watchdog_{3};
};

TEST_F(WatchdogTest, TrainingGroupDoesNotHang) {
  form(1);
  EXPECT_THAT(hanging_after(100'000), IsEmpty()) << "a step may take as long as it takes";
}

TEST_F(WatchdogTest, RankThatStaysInLostGroupHangs) {
  form(1);
  say(GroupLostEvent{}, 0, 1);
  say(GroupLostEvent{}, 1, 1);
  say(JoiningEvent{}, 0);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(24), IsEmpty());
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
  EXPECT_THAT(last_words_, testing::HasSubstr("training in epoch 1"));
  EXPECT_THAT(hanging_after(1), IsEmpty()) << "it is named once";
}

TEST_F(WatchdogTest, RanksWaitingForHungRankDoNotHang) {
  form(1);
  say(GroupLostEvent{}, 0, 1);
  say(GroupLostEvent{}, 1, 1);
  say(JoiningEvent{}, 0);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(100), ElementsAre(2)) << "0 and 1 wait in their join for 2";
}

TEST_F(WatchdogTest, RankThatDoesNotRegroupHangs) {
  form(1);
  say(RegroupingEvent{}, 0, 1);
  say(RegroupingEvent{}, 1, 1);
  say(JoiningEvent{}, 0);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(24), IsEmpty());
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
}

// A rank's departure from an earlier epoch says nothing about its current epoch.
TEST_F(WatchdogTest, RankCanHangInLaterEpoch) {
  form(1);
  for (uint32_t rank = 0; rank < 3; ++rank) say(GroupLostEvent{}, rank, 1);
  for (uint32_t rank = 0; rank < 3; ++rank) say(JoiningEvent{}, rank);
  for (uint32_t rank = 0; rank < 3; ++rank) say(ConnectingEvent{}, rank, 2);
  say(GroupLostEvent{}, 0, 2);  // 1 was lost again while the group formed
  say(JoiningEvent{}, 0);
  say(GroupLostEvent{}, 1, 2);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(59), IsEmpty()) << "connecting has a bound of its own";
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
}

TEST_F(WatchdogTest, NewProcessMayWaitForDaemon) {
  form(1);
  watchdog_.ended(2);
  watchdog_.started(2, now_);
  say(GroupLostEvent{}, 0, 1);
  say(GroupLostEvent{}, 1, 1);
  EXPECT_THAT(hanging_after(30), IsEmpty());
  say(JoiningEvent{}, 0);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(60), IsEmpty()) << "2 still looks for ckptd";
  say(JoiningEvent{}, 2);
  EXPECT_THAT(hanging_after(100), IsEmpty()) << "all wait for the epoch to open";
}

TEST_F(WatchdogTest, ProcessRestartedBeforeDetectionDoesNotHang) {
  form(1);
  watchdog_.ended(2);
  watchdog_.started(2, now_);
  say(JoiningEvent{}, 2);
  say(GroupLostEvent{}, 0, 1);
  say(GroupLostEvent{}, 1, 1);
  say(JoiningEvent{}, 0);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(100), IsEmpty());
}

TEST_F(WatchdogTest, RankThatIgnoresJoinAnswerHangs) {
  form(1, {0, 1, 2});
  for (uint32_t rank = 0; rank < 3; ++rank) say(GroupLostEvent{}, rank, 1);
  for (uint32_t rank = 0; rank < 3; ++rank) say(JoiningEvent{}, rank);
  say(ConnectingEvent{}, 0, 2);
  say(ConnectingEvent{}, 1, 2);
  say(GroupLostEvent{}, 0, 2);
  say(GroupLostEvent{}, 1, 2);
  say(JoiningEvent{}, 0);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(21), ElementsAre(2)) << "epoch 2 opened, so 2 had been answered";
}

TEST_F(WatchdogTest, ProcessStuckInStartHangs) {
  say(JoiningEvent{}, 0);
  say(JoiningEvent{}, 1);
  EXPECT_THAT(hanging_after(149), IsEmpty());
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
  EXPECT_THAT(last_words_, testing::HasSubstr("starting"));
}

TEST_F(WatchdogTest, SavingRankHasLongTimeoutSavedRankNone) {
  form(1);
  say(SavingEvent{}, 0, 1);
  say(SavedEvent{}, 0);
  say(SavingEvent{}, 1, 1);
  say(GroupLostEvent{}, 2, 1);
  say(JoiningEvent{}, 2);
  EXPECT_THAT(hanging_after(90), IsEmpty());
  EXPECT_THAT(hanging_after(11), ElementsAre(1));
}

// Time advances in seconds; the watchdog is asked every second, as by the supervisor.
class SilenceTest : public testing::Test {
 protected:
  SilenceTest() {
    for (uint32_t rank = 0; rank < 3; ++rank) watchdog_.started(rank, now_);
  }
  void say(EventBody body, uint32_t rank) {
    watchdog_.add({.header = {.rank = rank, .time_ns = now_, .epoch = 1}, .body = std::move(body)});
  }
  std::vector<uint32_t> hanging() {
    std::vector<uint32_t> ranks;
    for (const Watchdog::Hang& hang : watchdog_.hanging(now_)) {
      ranks.push_back(hang.rank);
      last_words_ = hang.reason;
    }
    return ranks;
  }
  // Lets `beating` send heartbeats for `count` seconds; returns the ranks that hung meanwhile.
  std::vector<uint32_t> seconds(uint64_t count, const std::vector<uint32_t>& beating) {
    std::vector<uint32_t> hung;
    for (uint64_t i = 0; i < count; ++i) {
      now_ += kSecond;
      for (const uint32_t rank : beating) say(AliveEvent{}, rank);
      for (const uint32_t rank : hanging()) hung.push_back(rank);
    }
    return hung;
  }
  uint64_t now_ = kSecond;
  std::string last_words_;
  Watchdog watchdog_{3, {.silent_ms = 10'000}};
};

TEST_F(SilenceTest, RankWithHeartbeatsNeverHangs) {
  for (uint32_t rank = 0; rank < 3; ++rank) say(TrainingEvent{}, rank);
  EXPECT_THAT(seconds(100'000, {0, 1, 2}), IsEmpty()) << "a step, or waiting for one of the others";
}

TEST_F(SilenceTest, SilentRankHangsInAnyState) {
  const std::vector<EventBody> states = {JoiningEvent{}, ConnectingEvent{}, RestoringEvent{},
                                         TrainingEvent{}, SavingEvent{}};
  for (const EventBody& about : states) {
    watchdog_.started(1, now_);
    say(about, 1);
    EXPECT_THAT(seconds(3, {0, 1, 2}), IsEmpty());
    EXPECT_THAT(seconds(10, {0, 2}), IsEmpty());
    EXPECT_THAT(seconds(5, {0, 2}), ElementsAre(1)) << kind_name(about) << ", and only once";
    EXPECT_EQ(last_words_, "silent for 11.0 s");
  }
}

TEST_F(SilenceTest, AnyEventCountsAsHeartbeat) {
  EXPECT_THAT(seconds(1, {0, 1, 2}), IsEmpty());
  for (int i = 0; i < 5; ++i) {
    say(StepEvent{}, 1);
    EXPECT_THAT(seconds(9, {0, 2}), IsEmpty());
  }
}

TEST_F(SilenceTest, StartingAndFinishedRanksNeedNoHeartbeat) {
  EXPECT_THAT(seconds(100, {0, 1}), IsEmpty()) << "2 is being started";
  say(SavedEvent{}, 0);
  say(DrainedEvent{}, 1);
  watchdog_.ended(1);
  EXPECT_THAT(seconds(20, {}), IsEmpty());
}

TEST_F(SilenceTest, PausedSupervisorBlamesNoRank) {
  EXPECT_THAT(seconds(2, {0, 1, 2}), IsEmpty());
  now_ += 60 * kSecond;  // the supervisor was stopped
  EXPECT_THAT(hanging(), IsEmpty());
  EXPECT_THAT(seconds(10, {0, 2}), IsEmpty()) << "1 has as long as ever from then on";
  EXPECT_THAT(seconds(1, {0, 2}), ElementsAre(1));
}

TEST_F(SilenceTest, SilenceWithoutTimeoutIsIgnored) {
  Watchdog patient(1);
  patient.started(0, now_);
  patient.add({.header = {.rank = 0, .time_ns = now_}, .body = AliveEvent{}});
  EXPECT_THAT(patient.hanging(now_ + 100 * kSecond), IsEmpty());
}

}  // namespace
}  // namespace moetrain
