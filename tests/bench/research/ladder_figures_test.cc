#include "bench/research/ladder_figures.h"

#include <gtest/gtest.h>

namespace bench {
namespace {

using moetrain::RankEvent;

constexpr LadderShape kShape{.ranks = 3, .experts = 4, .slots = 2, .replicas_min = 2};

// Epochs of these ranks, two steps each, from where the last one was.
class Ladder {
 public:
  void epoch(const std::vector<uint32_t>& ranks, uint32_t replicas, int64_t lost_tokens = 0) {
    ++epoch_;
    for (const uint32_t rank : ranks) {
      moetrain::TrainingEvent training{.group = static_cast<uint32_t>(ranks.size()),
                                       .effective_replicas = replicas};
      training.restored.lost_tokens = lost_tokens;
      add({.rank = rank, .epoch = epoch_, .step = step_}, training);
    }
    for (int i = 0; i < 2; ++i) {
      ++step_;
      for (const uint32_t rank : ranks) {
        add({.rank = rank, .step = step_}, moetrain::StepEvent{.loss_bits = 50});
      }
    }
  }
  void back_to(uint64_t step) { step_ = step; }
  LadderFigures figures() const { return ladder_figures(events, kShape); }

  std::vector<RankEvent> events;

 private:
  void add(moetrain::EventHeader at, moetrain::EventBody body) {
    at.time_ns = ++now_ns_;
    events.push_back({.header = at, .body = std::move(body)});
  }
  uint64_t now_ns_ = 0;
  uint64_t epoch_ = 0;
  uint64_t step_ = 0;
};

Ladder down_and_up() {
  Ladder ladder;
  ladder.epoch({0, 1, 2}, 1);
  ladder.epoch({0, 2}, 1);
  ladder.epoch({2}, 1);
  ladder.epoch({2, 3}, 1);
  ladder.epoch({2, 3, 4}, 1);
  return ladder;
}

TEST(LadderFigures, DescribeEveryEpoch) {
  const LadderFigures figures = down_and_up().figures();
  EXPECT_TRUE(figures.good());
  EXPECT_EQ(figures.steps, 10u);
  EXPECT_EQ(figures.loss_bits.size(), 10u);
  ASSERT_EQ(figures.epochs.size(), 5u);
  EXPECT_EQ(figures.epochs[1].group, 2u);
  EXPECT_EQ(figures.epochs[1].resumed_at, 2u);
  EXPECT_EQ(figures.epochs[1].replicas_expected, 1u) << "4 slots for 4 experts";
}

TEST(LadderFigures, DetectEachViolatedRequirement) {
  Ladder ladder = down_and_up();
  ladder.events.pop_back();  // rank 4 did not do step 10
  EXPECT_EQ(ladder.figures().idle_steps, 1u);
  EXPECT_FALSE(ladder.figures().good());

  ladder = down_and_up();
  ladder.back_to(9);
  ladder.epoch({2, 3, 4}, 1);
  EXPECT_EQ(ladder.figures().redone, 1u);
  EXPECT_FALSE(ladder.figures().good());

  ladder = down_and_up();
  ladder.epoch({2, 3, 4}, 1, 6);
  EXPECT_EQ(ladder.figures().lost_tokens, 6) << "once, though every rank says so";
  EXPECT_FALSE(ladder.figures().good());

  ladder = down_and_up();
  ladder.epoch({2, 3, 4}, 0);
  EXPECT_FALSE(ladder.figures().good()) << "an expert without a holder";

  ladder = down_and_up();
  ladder.epoch({2, 3}, 1);
  EXPECT_FALSE(ladder.figures().back_to_all);

  Ladder short_one;
  short_one.epoch({0, 1, 2}, 1);
  short_one.epoch({0, 2}, 1);
  short_one.epoch({0, 2, 3}, 1);
  EXPECT_FALSE(short_one.figures().reached_one);
  EXPECT_FALSE(short_one.figures().good());
}

}  // namespace
}  // namespace bench
