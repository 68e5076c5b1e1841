#include "bench/common/step_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bench {
namespace {

using moetrain::RankEvent;
using moetrain::SnapshotEvent;
using testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;

RankEvent step(uint32_t rank, uint64_t number, uint64_t at_ms, double stall_ms) {
  return {.header = {.rank = rank, .time_ns = at_ms * kMs, .step = number},
          .body = moetrain::StepEvent{.stall_ms = stall_ms}};
}
RankEvent snapshot(uint32_t rank, uint64_t number, uint64_t bytes, double durable_ms) {
  return {.header = {.rank = rank, .step = number},
          .body = SnapshotEvent{.durable = true, .bytes = bytes, .durable_ms = durable_ms}};
}

// Two ranks, steps 1 to 5, 100 ms each but for the third; a snapshot after each.
std::vector<RankEvent> a_run() {
  std::vector<RankEvent> events;
  uint64_t at_ms = 1000;
  for (uint64_t number = 1; number <= 5; ++number) {
    at_ms += number == 3 ? 200 : 100;
    events.push_back(step(1, number, at_ms + 7, 2.0 * static_cast<double>(number)));
    events.push_back(step(0, number, at_ms, 1));
    for (const uint32_t rank : {0u, 1u}) events.push_back(snapshot(rank, number, 500, 40));
  }
  return events;
}

TEST(StepFigures, CountOnlyEventsInsideWindow) {
  std::vector<RankEvent> events = a_run();
  events.push_back(snapshot(0, 1, 1'000'000, 4'000));  // of before
  events.push_back(snapshot(0, 5, 1'000'000, 4'000));  // after its last step
  const auto figures = step_figures(events, {.first = 2, .last = 5});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_DOUBLE_EQ(figures->step_seconds, 0.4 / 3);  // rank 0: 200, 100 and 100 ms
  EXPECT_DOUBLE_EQ(figures->stall_seconds, 0.008);   // of 6, 8 and 10 ms, rank 1's
  EXPECT_DOUBLE_EQ(figures->durable_seconds, 0.04);
  EXPECT_EQ(figures->snapshot_bytes, 1000u);
  EXPECT_EQ(figures->snapshots, 3u);
  EXPECT_EQ(figures->failures, 0u);
}

TEST(StepFigures, WithoutSnapshotsThereAreNoBytes) {
  const auto figures = step_figures({step(0, 1, 100, 0), step(0, 2, 150, 0)}, {1, 2});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_DOUBLE_EQ(figures->step_seconds, 0.05);
  EXPECT_EQ(figures->snapshot_bytes, 0u);
  EXPECT_EQ(figures->snapshots, 0u);
}

TEST(StepFigures, AFailedSnapshotIsCounted) {
  std::vector<RankEvent> events = a_run();
  events.push_back({.header = {.rank = 1, .step = 4}, .body = SnapshotEvent{.reason = "no slab"}});
  EXPECT_EQ(step_figures(events, {2, 5}).value().failures, 1u);
}

// Turns of three steps: 100 ms each without snapshots, 110 ms with, but for the first step of each
// turn, which takes 500 ms.
TEST(TurnFigures, PairEachTurnWithPreviousTurn) {
  std::vector<RankEvent> events;
  uint64_t at_ms = 1000;
  for (uint64_t number = 1; number <= 18; ++number) {
    const uint64_t since = number - 1;  // a snapshot of this step slows step `number`
    const bool with = since / 3 % 2 == 1;
    at_ms += since % 3 == 0 ? 500 : with ? 110 : 100;
    events.push_back(step(0, number, at_ms, with ? 6 : 0));
    if (number / 3 % 2 == 1) events.push_back(snapshot(0, number, 500, 40));
  }
  const auto turns = turn_figures(events, {.first = 6, .last = 18}, 3);
  ASSERT_TRUE(turns.ok()) << turns.error().message;
  ASSERT_EQ(turns->pairs.size(), 2u);  // the first two turns are before the window
  for (const StepPair& pair : turns->pairs) {
    EXPECT_DOUBLE_EQ(pair.without_seconds, 0.1);
    EXPECT_DOUBLE_EQ(pair.with_seconds, 0.11);
  }
  EXPECT_DOUBLE_EQ(turns->figures.stall_seconds, 0.006);  // of steps after a snapshot alone
  EXPECT_EQ(turns->figures.snapshots, 6u);
  EXPECT_EQ(turn_figures(events, {.first = 6, .last = 17}, 3).value().pairs.size(), 1u);
  EXPECT_THAT(turn_figures(events, {.first = 6, .last = 19}, 3).error().message,
              HasSubstr("steps 6 to 19"));
}

TEST(StepFigures, ExchangeCountsWindowOnly) {
  std::vector<RankEvent> events;
  for (uint64_t number = 1; number <= 4; ++number) {
    for (const uint32_t rank : {0u, 1u}) {
      RankEvent event = step(rank, number, 100 * number, 0);
      std::get<moetrain::StepEvent>(event.body).experts = {.restore_bytes = 1'000 * number,
                                                           .exposed_ms = rank == 0 ? 2.0 : 4.0,
                                                           .memory_bytes = 70 + rank,
                                                           .memory_bound = 90};
      events.push_back(event);
    }
  }
  const auto figures = step_figures(events, {.first = 2, .last = 4});
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_EQ(figures->exchange.steps, 2u);
  EXPECT_DOUBLE_EQ(figures->exchange.restore_bytes, 3'500);  // steps 3 and 4
  EXPECT_DOUBLE_EQ(figures->exchange.exposed_ms, 3);         // of both ranks
  EXPECT_EQ(figures->exchange.memory_bytes, 71u);
  EXPECT_EQ(figures->exchange.memory_bound, 90u);
}

TEST(LossBits, BelongToGivenStep) {
  std::vector<RankEvent> events = a_run();
  for (RankEvent& event : events) {
    if (auto* done = std::get_if<moetrain::StepEvent>(&event.body)) {
      done->loss_bits = static_cast<uint32_t>(100 + event.header.step);
    }
  }
  EXPECT_EQ(loss_bits_of(events, 5).value(), 105u);
  const auto none = loss_bits_of(events, 6);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("the loss of step 6"));
}

TEST(StepFigures, RefuseRunWithMissingStepsOrLostGroup) {
  std::vector<RankEvent> events = a_run();
  EXPECT_THAT(step_figures(events, {2, 6}).error().message, HasSubstr("steps 2 to 6"));
  events.push_back({.header = {.rank = 1, .step = 3},
                    .body = moetrain::GroupLostEvent{.reason = "rank 0 is gone"}});
  EXPECT_THAT(step_figures(events, {2, 5}).error().message, HasSubstr("rank 0 is gone"));
}

}  // namespace
}  // namespace bench
