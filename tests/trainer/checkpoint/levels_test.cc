// Two levels with a real ckptd: restored versions, their sources, and lost tokens, after the death
// of the trainers and after the death of ckptd as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/trainer/checkpoint/daemon_run.h"

namespace moetrain {
namespace {

class LevelsTest : public DaemonRunTest {
 protected:
  LevelsTest()
      : DaemonRunTest(
            {.k = 1, .k_snapshot = 3, .selector = Selector::kSequential, .plt_budget = 1}) {}

  // Restores the way a rank begins an epoch; returns the loss that PLT computes for the view.
  Result<RecoveryLoss> resume() {
    stamps_.clear();
    CKPT_ASSIGN(summary_, restore_units(*session_, "tiny", *resume_, units_,
                                        units_of_rank(units_, Ownership::replicated(placement_), 0),
                                        *memory_, nullptr, ViewLevel::kMemory));
    std::vector<int64_t> in_memory(kGrid.size());
    for (const uint32_t id : summary_.memory_units) {
      in_memory[kGrid.at(*units_[id].layer, *units_[id].expert)] = 1;
    }
    const View& view = views_.at(resume_->step);
    return partial_.resume(view.partial, view.routed, stamps_, in_memory);
  }
  // Tokens of the view whose updates the versions `held` lack.
  int64_t lost(const std::vector<int64_t>& held) const {
    const std::vector<int64_t>& routed = views_.at(resume_->step).routed;
    return std::accumulate(routed.begin(), routed.end(), int64_t{0}) -
           std::accumulate(held.begin(), held.end(), int64_t{0});
  }

  RestoreSummary summary_;
};

TEST_F(LevelsTest, TrainerDeathLosesLessThanDaemonDeath) {
  for (int i = 0; i < 6; ++i) {
    step();
    save();
  }
  step();
  connect();  // the old session's arena has no trainer now
  ASSERT_TRUE(resume_.has_value());
  ASSERT_EQ(resume_->step, 6u);
  const auto first = resume();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_FALSE(summary_.memory_units.empty());
  EXPECT_GT(summary_.bytes_memory, 0u);
  EXPECT_EQ(first->tokens, lost(held_saved_));
  const Image back = image();
  for (const auto& [unit, saved] : saved_) {
    EXPECT_TRUE(back.at(unit) == saved.bytes) << units_[unit].name;
  }

  daemon_.crash_and_restart();
  connect();
  ASSERT_TRUE(resume_.has_value());
  ASSERT_EQ(resume_->step, 6u);
  const auto second = resume();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(summary_.memory_units.empty());
  EXPECT_EQ(summary_.bytes_memory, 0u);
  EXPECT_EQ(second->tokens, lost(held_disk_));
  EXPECT_GT(second->tokens, first->tokens);
}

TEST_F(LevelsTest, SingleExpertsAreRestoredFromMemory) {
  for (int i = 0; i < 4; ++i) {
    step();
    save();
  }
  step();
  std::vector<uint32_t> all(kGrid.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto back = read(all, step_);
  ASSERT_TRUE(back.ok()) << back.error().message;
  std::vector<int64_t> in_memory(kGrid.size());
  for (const ExpertVersions::Version& version : back->versions()) {
    in_memory[version.expert] = version.in_memory ? 1 : 0;
  }
  EXPECT_GT(std::accumulate(in_memory.begin(), in_memory.end(), int64_t{0}), 0);
  const auto loss = partial_.roll_back(all, back->stamps(), routed_, updates_, in_memory);
  ASSERT_TRUE(loss.ok()) << loss.error().message;
  EXPECT_EQ(loss->tokens, std::accumulate(held_.begin(), held_.end(), int64_t{0}) -
                              std::accumulate(held_saved_.begin(), held_saved_.end(), int64_t{0}));
  // Experts that are on no disk are written next.
  step();
  const auto plan = partial_.next(step_, {routed_, updates_}, false, stamps_);
  for (const uint32_t expert : plan.experts) EXPECT_EQ(in_memory[expert], 1) << expert;
}

}  // namespace
}  // namespace moetrain
