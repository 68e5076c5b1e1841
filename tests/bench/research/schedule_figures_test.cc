#include "bench/research/schedule_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/model/step_profile.h"

namespace bench {
namespace {

using moetrain::Activity;
using moetrain::Lane;
using moetrain::RankEvent;
using moetrain::ScheduleEvent;
using testing::HasSubstr;

// A rank's own thread, one activity after the other.
class Thread {
 public:
  Thread& then(Activity activity, uint32_t layer, Lane lane = Lane::kCompute) {
    const bool is_moment =
        activity == Activity::kSubmitRestore || activity == Activity::kSubmitReshard;
    const int64_t begin_ns = now_ns_;
    const int64_t end_ns = begin_ns + (is_moment ? 0 : 100);
    schedule_.spans.push_back(
        {static_cast<int64_t>(activity), static_cast<int64_t>(lane), layer, begin_ns, end_ns});
    now_ns_ = end_ns + 1;
    return *this;
  }
  RankEvent to_event(uint32_t rank = 0, uint64_t step = 1) const {
    return {.header = {.rank = rank, .step = step}, .body = schedule_};
  }

 private:
  int64_t now_ns_ = 1'000;
  ScheduleEvent schedule_;
};

// Forward over three layers, each restored one layer ahead; then backward over one of them.
Thread a_step() {
  Thread own;
  own.then(Activity::kTokens, 0)
      .then(Activity::kSubmitRestore, 0)
      .then(Activity::kSubmitRestore, 1)
      .then(Activity::kWaitRestore, 0)
      .then(Activity::kExpertsForward, 0)
      .then(Activity::kSubmitRestore, 2)
      .then(Activity::kWaitRestore, 1)
      .then(Activity::kExpertsForward, 1)
      .then(Activity::kWaitRestore, 2)
      .then(Activity::kExpertsForward, 2);
  own.then(Activity::kExpertsBackward, 2)
      .then(Activity::kSubmitReshard, 2)
      .then(Activity::kExpertsBackward, 1)
      .then(Activity::kExpertsBackward, 0)
      .then(Activity::kWaitReshard, 2);
  return own;
}

TEST(ScheduleFigures, CountLayersBetweenAnExchangeAndItsWait) {
  const auto figures = schedule_figures({a_step().to_event(0), a_step().to_event(1)});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_EQ(figures->steps, 2u);
  EXPECT_EQ(figures->restores.exchanges, 6u);
  EXPECT_DOUBLE_EQ(figures->restores.layers, 2.0 / 3);  // 0, 1 and 1
  EXPECT_EQ(figures->reshards.exchanges, 2u);
  EXPECT_DOUBLE_EQ(figures->reshards.layers, 2);
}

TEST(ScheduleFigures, OrderFollowsThreadNotEvent) {
  RankEvent event = a_step().to_event();
  auto& schedule = std::get<ScheduleEvent>(event.body);
  std::swap(schedule.spans[4], schedule.spans[7]);
  const auto figures = schedule_figures({event});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_DOUBLE_EQ(figures->restores.layers, 2.0 / 3);
}

TEST(ScheduleFigures, ExchangesOnTheRanksThreadAreNotAhead) {
  Thread own;
  own.then(Activity::kRestore, 0).then(Activity::kExpertsForward, 0);
  own.then(Activity::kExpertsBackward, 0).then(Activity::kReshard, 0);
  const auto figures = schedule_figures({own.to_event()});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_EQ(figures->restores.exchanges, 1u);
  EXPECT_EQ(figures->reshards.exchanges, 1u);
  EXPECT_EQ(figures->restores.layers, 0);
  EXPECT_EQ(figures->reshards.layers, 0);
}

TEST(ScheduleFigures, IgnoreOtherThread) {
  Thread own = a_step();
  own.then(Activity::kRestore, 0, Lane::kCommunication);
  const auto figures = schedule_figures({own.to_event()});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_EQ(figures->restores.exchanges, 3u);
}

TEST(ScheduleFigures, IgnoreOtherEvents) {
  const auto figures = schedule_figures({{.body = moetrain::StepEvent{}}});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_EQ(figures->steps, 0u);
  EXPECT_EQ(figures->restores.layers, 0);
}

TEST(ScheduleFigures, RefuseIncompleteTrace) {
  RankEvent cut = a_step().to_event(3, 7);
  std::get<ScheduleEvent>(cut.body).left_out = 2;
  EXPECT_THAT(schedule_figures({cut}).error().message, HasSubstr("rank 3, step 7: 2 spans"));
  Thread waits;
  waits.then(Activity::kWaitRestore, 0);
  EXPECT_THAT(schedule_figures({waits.to_event()}).error().message, HasSubstr("do not pair"));
  Thread unended;
  unended.then(Activity::kSubmitReshard, 0);
  EXPECT_THAT(schedule_figures({unended.to_event()}).error().message, HasSubstr("do not pair"));
}

}  // namespace
}  // namespace bench
