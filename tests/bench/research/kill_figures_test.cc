#include "bench/research/kill_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace bench {
namespace {

using moetrain::ConnectingEvent;
using moetrain::EventBody;
using moetrain::GroupLostEvent;
using moetrain::JoiningEvent;
using moetrain::RankEvent;
using moetrain::RestoringEvent;
using moetrain::StepEvent;
using moetrain::TrainingEvent;
using testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;

RankEvent at(uint64_t ms, uint32_t rank, uint64_t epoch, uint64_t step, EventBody body) {
  return {.header = {.rank = rank, .time_ns = ms * kMs, .epoch = epoch, .step = step},
          .body = std::move(body)};
}
RankEvent step(uint64_t ms, uint32_t rank, uint64_t number, uint32_t bits = 0) {
  const uint32_t loss_bits = bits == 0 ? static_cast<uint32_t>(number) : bits;
  return at(ms, rank, 0, number, StepEvent{.loss_bits = loss_bits});
}
RankEvent training(uint64_t ms, uint32_t rank, uint64_t epoch, uint64_t step, uint32_t group) {
  return at(ms, rank, epoch, step, TrainingEvent{.group = group, .effective_replicas = group - 1});
}

// Three ranks do steps 1 to 3, 100 ms each; rank 1 is lost at 1330 ms, and the survivors continue
// from step `resumed_at`.
std::vector<RankEvent> a_loss(uint64_t resumed_at) {
  std::vector<RankEvent> events;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    events.push_back(training(1000, rank, 1, 0, 3));
    for (uint64_t number = 1; number <= 3; ++number) {
      events.push_back(step(1000 + 100 * number + rank, rank, number));
    }
  }
  for (const uint32_t rank : {0u, 2u}) {
    events.push_back(at(1350 + rank, rank, 1, 3, GroupLostEvent{}));
    events.push_back(at(1360, rank, 0, 0, JoiningEvent{}));
    events.push_back(at(1400, rank, 2, 0, ConnectingEvent{}));
    events.push_back(at(1450 + rank, rank, 2, 0, RestoringEvent{}));
    TrainingEvent ready{.group = 2, .effective_replicas = 1};
    ready.relayout.plan_ms = 10 + rank;
    ready.restored.lost_tokens = 7;
    ready.restored.stale_units = {5, 9 + rank};
    events.push_back(at(1500 + rank, rank, 2, resumed_at, ready));
    for (uint64_t number = resumed_at + 1; number <= 6; ++number) {
      events.push_back(step(1500 + 100 * (number - resumed_at) + 2 * rank, rank, number, 77));
    }
  }
  return events;
}
const Kill kKill{.at_ns = 1330 * kMs, .ranks = {1}};

TEST(KillFigures, SplitTheTimeToTheNextStep) {
  const auto figures = kill_figures(a_loss(3), kKill);
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_DOUBLE_EQ(figures->step_seconds, 0.1);
  EXPECT_DOUBLE_EQ(figures->seconds, 0.274);  // rank 2 has step 4 at 1604 ms
  EXPECT_DOUBLE_EQ(figures->new_step_seconds, 0.274);
  EXPECT_DOUBLE_EQ(figures->split.detect, 0.022);
  EXPECT_DOUBLE_EQ(figures->split.regroup, 0.1);
  EXPECT_DOUBLE_EQ(figures->split.plan, 0.012);
  EXPECT_DOUBLE_EQ(figures->split.migrate, 0.038);
  EXPECT_DOUBLE_EQ(figures->split.first_step, 0.102);
  const KillSplit& split = figures->split;
  EXPECT_DOUBLE_EQ(split.detect + split.regroup + split.plan + split.migrate + split.first_step,
                   figures->seconds);
  EXPECT_EQ(figures->completed, 3u);
  EXPECT_EQ(figures->resumed_at, 3u);
  EXPECT_EQ(figures->redone(), 0u);
  EXPECT_EQ(figures->group, 2u);
  EXPECT_EQ(figures->effective_replicas, 1u);
  EXPECT_EQ(figures->lost_tokens, 7) << "all ranks say the same: it is not added up";
  EXPECT_EQ(figures->stale_units, (std::set<uint32_t>{5, 9, 11}));
  EXPECT_EQ(figures->loss_bits.size(), 6u);
}

TEST(KillFigures, RedoneStepsAreNotProgress) {
  const auto figures = kill_figures(a_loss(1), kKill);
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_EQ(figures->redone(), 2u);
  EXPECT_DOUBLE_EQ(figures->seconds, 0.274);
  EXPECT_DOUBLE_EQ(figures->new_step_seconds, 0.474) << "steps 2 and 3 are no progress";
  EXPECT_EQ(figures->loss_bits.at(1), 1u);
  EXPECT_EQ(figures->loss_bits.at(2), 77u) << "the later one counts";
}

// Rank 0 applied step 4 before it detected the loss. Rank 2 applies the step when both agree.
TEST(KillFigures, LateAppliedStepIsNotRedone) {
  std::vector<RankEvent> events = a_loss(4);
  events.push_back(step(1335, 0, 4));
  events.push_back(step(1470, 2, 4));
  const auto figures = kill_figures(events, kKill);
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_EQ(figures->completed, 4u);
  EXPECT_EQ(figures->redone(), 0u);
  EXPECT_DOUBLE_EQ(figures->seconds, 0.274) << "the next step is 5";
}

// An epoch in which no rank completes a step counts as part of regrouping.
TEST(KillFigures, FailedEpochCountsAsRegrouping) {
  std::vector<RankEvent> events = a_loss(3);
  for (RankEvent& event : events) {
    if (event.header.epoch == 2) event.header.epoch = 3;
  }
  events.push_back(training(1380, 0, 2, 3, 3));
  events.push_back(at(1390, 0, 2, 3, GroupLostEvent{}));
  const auto figures = kill_figures(events, kKill);
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_DOUBLE_EQ(figures->split.detect, 0.022);
  EXPECT_DOUBLE_EQ(figures->split.regroup, 0.1);
  EXPECT_EQ(figures->group, 2u);
}

TEST(KillFigures, RefuseRunThatDidNotResume) {
  std::vector<RankEvent> events = a_loss(3);
  std::erase_if(events, [](const RankEvent& event) {
    return event.header.rank == 2 && event.as<StepEvent>() != nullptr && event.header.step > 3;
  });
  EXPECT_THAT(kill_figures(events, kKill).error().message,
              HasSubstr("has 2 ranks; 2 began to train, 1 did a step and 1 did step 4"));
  EXPECT_THAT(kill_figures(events, {.at_ns = 10, .ranks = {1}}).error().message,
              HasSubstr("nobody trained before"));
  std::erase_if(events, [](const RankEvent& event) { return event.header.epoch == 2; });
  EXPECT_THAT(kill_figures(events, kKill).error().message, HasSubstr("nobody trained on after"));
}

TEST(RelativeDifference, IsMaximumOverSteps) {
  const auto losses = [](std::vector<float> values) {
    std::map<uint64_t, uint32_t> bits;
    for (const float value : values) bits[bits.size() + 1] = std::bit_cast<uint32_t>(value);
    return bits;
  };
  EXPECT_EQ(relative_difference(losses({4, 2}), losses({4, 2})), 0);
  EXPECT_DOUBLE_EQ(relative_difference(losses({4, 2, 8}), losses({4, 3, 9})), 0.5);
  EXPECT_TRUE(std::isinf(relative_difference(losses({4, 2}), losses({4}))));
  EXPECT_TRUE(std::isinf(relative_difference(losses({4}), losses({4, 2}))));
  EXPECT_TRUE(std::isinf(relative_difference(losses({NAN}), losses({1}))));
  EXPECT_TRUE(std::isinf(relative_difference({{1, 5}}, {{2, 5}})));
}

}  // namespace
}  // namespace bench
