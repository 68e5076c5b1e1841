// The report of a run that went on without a rank whose process lived.
#include <gmock/gmock.h>

#include "tests/trainer/elastic/recorder_fixture.h"

namespace moetrain {
namespace {

// Rank 3 is stopped and rank 2 killed; the others do not wait for longer than their grace.
class LeftBehindTest : public RecorderTest {
 protected:
  void begin(const std::vector<uint32_t>& ranks) {
    ++epoch_;
    for (const uint32_t rank : ranks) {
      RankEvent training = event(Kind::kTraining, rank, 1);
      training.goes_on = epoch_ > 1;
      training.group = static_cast<uint32_t>(ranks.size());
      four_.add(training);
    }
  }
  void lose_group(const std::vector<uint32_t>& ranks, uint64_t epoch) {
    for (const uint32_t rank : ranks) {
      RankEvent lost = event(Kind::kGroupLost, rank, 1);
      lost.epoch = epoch;
      four_.add(lost);
    }
  }
  void leave_3_behind() {
    begin({0, 1, 2, 3});
    four_.rank_died(2, now_ += kMs);
    lose_group({0, 1}, 1);
    begin({0, 1});
  }

  Recorder four_{4, 512};
};

TEST_F(LeftBehindTest, OneThatIsKilledLaterWasLostWithTheFirst) {
  leave_3_behind();
  four_.rank_hangs(3);
  four_.rank_died(3, now_ += kMs);
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(2, 3));
  EXPECT_EQ(report.failures[0].group, 2u);
}

TEST_F(LeftBehindTest, ItsEndHidesNoFailureThatFollows) {
  leave_3_behind();
  for (const bool while_lost : {false, true}) {
    if (!while_lost) four_.rank_died(3, now_ += kMs);
    four_.rank_died(1, now_ += kMs);
    if (while_lost) four_.rank_died(3, now_ += kMs);
    lose_group({0}, epoch_);
    begin({0});
    begin({0, 1});  // it joins again
  }
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 3u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(2, 3));
  EXPECT_THAT(report.failures[1].ranks, testing::ElementsAre(1));
  EXPECT_THAT(report.failures[2].ranks, testing::ElementsAre(1));
  EXPECT_EQ(report.failures[2].group, 1u);
}

TEST_F(LeftBehindTest, OneThatComesToItselfLateIsNamedAndLosesNoGroup) {
  leave_3_behind();
  lose_group({3}, 1);
  begin({0, 1, 3});
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(2, 3));
}

TEST_F(LeftBehindTest, WhoHasLeftIsNotLost) {
  begin({0, 1, 2, 3});
  four_.add(event(Kind::kDrained, 3, 1));
  four_.rank_died(2, now_ += kMs);
  lose_group({0, 1}, 1);
  begin({0, 1});
  ASSERT_EQ(four_.report().failures.size(), 1u);
  EXPECT_THAT(four_.report().failures[0].ranks, testing::ElementsAre(2));
}

}  // namespace
}  // namespace moetrain
