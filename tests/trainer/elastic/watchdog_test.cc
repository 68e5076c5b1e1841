// Who hangs, and who only waits.
#include "trainer/elastic/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using Kind = RankEvent::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    for (uint32_t rank = 0; rank < 3; ++rank) watchdog_.started(rank, now_);
  }
  void say(Kind kind, uint32_t rank, uint64_t epoch = 0) {
    watchdog_.add({.kind = kind, .rank = rank, .time_ns = ++now_, .epoch = epoch});
  }
  void form(uint64_t epoch, const std::vector<uint32_t>& ranks = {0, 1, 2}) {
    for (const uint32_t rank : ranks) say(Kind::kJoining, rank);
    for (const uint32_t rank : ranks) say(Kind::kConnecting, rank, epoch);
    for (const uint32_t rank : ranks) say(Kind::kTraining, rank, epoch);
  }
  std::vector<uint32_t> hanging_after(uint64_t seconds) {
    now_ += seconds * kSecond;
    std::vector<uint32_t> ranks;
    for (const Watchdog::Hang& hang : watchdog_.hanging(now_)) {
      ranks.push_back(hang.rank);
      last_words_ = hang.what;
    }
    return ranks;
  }
  uint64_t now_ = kSecond;
  std::string last_words_;
  Watchdog watchdog_{3};
};

TEST_F(WatchdogTest, AGroupThatTrainsIsLeftAlone) {
  form(1);
  EXPECT_THAT(hanging_after(100'000), IsEmpty()) << "a step may take as long as it takes";
}

TEST_F(WatchdogTest, WhoDoesNotLeaveALostGroupHangs) {
  form(1);
  say(Kind::kGroupLost, 0, 1);
  say(Kind::kGroupLost, 1, 1);
  say(Kind::kJoining, 0);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(24), IsEmpty());
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
  EXPECT_THAT(last_words_, testing::HasSubstr("training in epoch 1"));
  EXPECT_THAT(hanging_after(1), IsEmpty()) << "it is named once";
}

TEST_F(WatchdogTest, WhoWaitsForTheHangingOneIsSpared) {
  form(1);
  say(Kind::kGroupLost, 0, 1);
  say(Kind::kGroupLost, 1, 1);
  say(Kind::kJoining, 0);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(100), ElementsAre(2)) << "0 and 1 wait in their join for 2";
}

TEST_F(WatchdogTest, WhoDoesNotComeAlongWhenOthersAreLetInHangs) {
  form(1);
  say(Kind::kRegrouping, 0, 1);
  say(Kind::kRegrouping, 1, 1);
  say(Kind::kJoining, 0);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(24), IsEmpty());
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
}

// Left over from an earlier loss, that a rank once left says nothing about the epoch it is in now.
TEST_F(WatchdogTest, ARankThatLeftAnEarlierEpochCanHangInALaterOne) {
  form(1);
  for (uint32_t rank = 0; rank < 3; ++rank) say(Kind::kGroupLost, rank, 1);
  for (uint32_t rank = 0; rank < 3; ++rank) say(Kind::kJoining, rank);
  for (uint32_t rank = 0; rank < 3; ++rank) say(Kind::kConnecting, rank, 2);
  say(Kind::kGroupLost, 0, 2);  // 1 was lost again while the group formed
  say(Kind::kJoining, 0);
  say(Kind::kGroupLost, 1, 2);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(59), IsEmpty()) << "connecting has a bound of its own";
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
}

TEST_F(WatchdogTest, AFreshProcessMayWaitForADaemonThatIsAway) {
  form(1);
  watchdog_.ended(2);
  watchdog_.started(2, now_);
  say(Kind::kGroupLost, 0, 1);
  say(Kind::kGroupLost, 1, 1);
  EXPECT_THAT(hanging_after(30), IsEmpty());
  say(Kind::kJoining, 0);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(60), IsEmpty()) << "2 still looks for ckptd";
  say(Kind::kJoining, 2);
  EXPECT_THAT(hanging_after(100), IsEmpty()) << "all wait for the epoch to open";
}

TEST_F(WatchdogTest, AProcessThatJoinedBeforeTheOthersNoticedIsNotOneOfThem) {
  form(1);
  watchdog_.ended(2);
  watchdog_.started(2, now_);
  say(Kind::kJoining, 2);
  say(Kind::kGroupLost, 0, 1);
  say(Kind::kGroupLost, 1, 1);
  say(Kind::kJoining, 0);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(100), IsEmpty());
}

TEST_F(WatchdogTest, ARankThatNeverTakesItsAnswerHangs) {
  form(1, {0, 1, 2});
  for (uint32_t rank = 0; rank < 3; ++rank) say(Kind::kGroupLost, rank, 1);
  for (uint32_t rank = 0; rank < 3; ++rank) say(Kind::kJoining, rank);
  say(Kind::kConnecting, 0, 2);
  say(Kind::kConnecting, 1, 2);
  say(Kind::kGroupLost, 0, 2);
  say(Kind::kGroupLost, 1, 2);
  say(Kind::kJoining, 0);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(21), ElementsAre(2)) << "epoch 2 opened, so 2 had been answered";
}

TEST_F(WatchdogTest, AProcessThatNeverGetsAnywhereHangs) {
  say(Kind::kJoining, 0);
  say(Kind::kJoining, 1);
  EXPECT_THAT(hanging_after(149), IsEmpty());
  EXPECT_THAT(hanging_after(2), ElementsAre(2));
  EXPECT_THAT(last_words_, testing::HasSubstr("starting"));
}

TEST_F(WatchdogTest, SavingAndBeingDoneIsNoHanging) {
  form(1);
  say(Kind::kSaving, 0, 1);
  say(Kind::kSaved, 0);
  say(Kind::kSaving, 1, 1);
  say(Kind::kGroupLost, 2, 1);
  say(Kind::kJoining, 2);
  EXPECT_THAT(hanging_after(90), IsEmpty());
  EXPECT_THAT(hanging_after(11), ElementsAre(1));
}

}  // namespace
}  // namespace moetrain
