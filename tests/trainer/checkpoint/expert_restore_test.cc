// Restore of single experts from a real ckptd while training continues: restores the newest
// versions, counts lost tokens exactly, and changes nothing if a version is unusable.
#include "trainer/checkpoint/expert_restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/trainer/checkpoint/daemon_run.h"

namespace moetrain {
namespace {

using testing::HasSubstr;
class ExpertRestoreTest : public DaemonRunTest {};

TEST_F(ExpertRestoreTest, RestoresNewestVersionsAndCountsLostTokens) {
  for (int i = 0; i < 7; ++i) {
    step();
    if (i != 4) save();
  }
  step();  // no commit is at this step
  const Image before = image();
  const std::vector<uint32_t> experts = {6, 1, 3};
  const auto back = read(experts, step_);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(image(), before) << "reading changes nothing";
  EXPECT_GT(back->bytes_memory() + back->bytes_disk(), 0u);

  int64_t expected = 0;
  for (size_t i = 0; i < experts.size(); ++i) {
    expected += held_[experts[i]] - held_saved_[experts[i]];
    EXPECT_EQ(back->versions()[i].expert, experts[i]);
    EXPECT_FALSE(back->versions()[i].in_memory);
  }
  std::vector<int64_t> updates = updates_;
  const auto loss = partial_.roll_back(experts, back->stamps(), routed_, updates);
  ASSERT_TRUE(loss.ok()) << loss.error().message;
  EXPECT_GT(loss->tokens, 0);
  EXPECT_EQ(loss->tokens, expected);
  EXPECT_DOUBLE_EQ(partial_.plt(routed_), loss->plt);
  const PltMeter::Lost lost = partial_.state().lost;
  EXPECT_EQ(std::accumulate(lost.restart.begin(), lost.restart.end(), int64_t{0}), 0);
  EXPECT_EQ(lost.rollback[6], held_[6] - held_saved_[6]);

  ASSERT_TRUE(back->put(*memory_, *device_).ok());
  const Image after = image();
  for (uint32_t id = 0; id < units_.size(); ++id) {
    const auto expert = units_[id].expert;
    const size_t at = expert ? kGrid.at(*units_[id].layer, *expert) : SIZE_MAX;
    const auto found = std::find(experts.begin(), experts.end(), at);
    const bool chosen = found != experts.end();
    EXPECT_TRUE(after.at(id) == (chosen ? saved_[id].bytes : before.at(id))) << units_[id].name;
    if (!chosen) continue;
    EXPECT_EQ(back->versions()[static_cast<size_t>(found - experts.begin())].step, saved_[id].step);
    EXPECT_EQ(updates[at], static_cast<int64_t>(saved_[id].step));
  }
  for (const size_t untouched : {0, 2, 4, 5, 7}) EXPECT_EQ(updates[untouched], updates_[untouched]);
}

TEST_F(ExpertRestoreTest, SecondRollbackCountsOnlyTokensSinceFirst) {
  step();
  save();
  for (int i = 0; i < 3; ++i) step();
  const std::vector<uint32_t> experts = {5};
  auto back = read(experts, step_);
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_TRUE(partial_.roll_back(experts, back->stamps(), routed_, updates_).ok());
  ASSERT_TRUE(back->put(*memory_, *device_).ok());
  held_[5] = held_saved_[5];
  connect();  // the survivors' next epoch, in a lineage of its own
  step();
  const int64_t since = held_[5] - held_saved_[5];
  back = read(experts, step_);
  ASSERT_TRUE(back.ok()) << back.error().message;
  const auto loss = partial_.roll_back(experts, back->stamps(), routed_, updates_);
  ASSERT_TRUE(loss.ok()) << loss.error().message;
  EXPECT_EQ(loss->tokens, since);
  held_[5] = held_saved_[5];
  EXPECT_EQ(partial_.state().lost.rollback[5], routed_[5] - held_[5]);

  step();
  save(/*full=*/true);
  back = read(experts, step_);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->versions()[0].step, step_);
  const auto nothing = partial_.roll_back(experts, back->stamps(), routed_, updates_);
  ASSERT_TRUE(nothing.ok()) << nothing.error().message;
  EXPECT_EQ(nothing->tokens, 0);
}

TEST_F(ExpertRestoreTest, RestoresNoVersionNewerThanRequestedStep) {
  for (int i = 0; i < 3; ++i) {
    step();
    save(/*full=*/true);
    step();
  }
  const auto back = read({2}, 4);  // commits are at 1, 3 and 5
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->versions()[0].step, 3u);
  EXPECT_EQ(back->stamps().at(ExpertPart::kWeights, 2).snapshot, 2);
  const auto early = read({2}, 0);
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, ckpt::ErrorCode::kNotFound);
  const auto elsewhere =
      ExpertVersions::read(*session_, "tiny", {99, 4}, units_, kGrid, std::vector<uint32_t>{2});
  EXPECT_THAT(elsewhere.error().message, HasSubstr("no lineage 99"));
}

// A prune keeps versions that views need, not the commits, nor the trainer units, that they are of.
TEST_F(ExpertRestoreTest, FindsStampsOfVersionsWhoseCommitsWerePruned) {
  step();
  save(/*full=*/true);
  for (int i = 0; i < 3; ++i) {
    step();
    save();
  }
  std::vector<uint32_t> all(kGrid.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto before = read(all, step_);
  ASSERT_TRUE(before.ok()) << before.error().message;
  const auto pruned =
      session_->query("prune", R"({"target": "tiny", "rules": {"last": 1}})", 10'000);
  ASSERT_TRUE(pruned) << pruned.error().message;
  ASSERT_EQ(pruned->exit_code, 0) << pruned->json;
  const auto after = read(all, step_);
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(after->stamps().list(), before->stamps().list());
  uint64_t oldest = step_;
  for (const auto& version : after->versions()) oldest = std::min(oldest, version.step);
  EXPECT_LT(oldest, step_);
}

TEST_F(ExpertRestoreTest, NamesAUnitThatWasNeverSaved) {
  step();
  forge_stamps({1, 0, 1});
  save_all_but("layers.1.experts.2.optimizer");
  const Image before = image();
  const auto back = read({1, 6}, step_);
  ASSERT_FALSE(back.ok());
  EXPECT_EQ(back.error().code, ckpt::ErrorCode::kNotFound);
  EXPECT_THAT(back.error().message, HasSubstr("layers.1.experts.2.optimizer"));
  EXPECT_EQ(image(), before);
  EXPECT_TRUE(read({1}, step_).ok()) << "the view need not be complete";
}

// A session reads only units that it has registered, and ckptd refuses other units for a run that
// already has units.
TEST_F(ExpertRestoreTest, RefusesUnitsOfOtherShapes) {
  step();
  save();
  const std::vector<uint32_t> expert = {3};
  const auto back = ExpertVersions::read(*session_, "tiny", {lineage_, step_},
                                         state_units(small_shape(32)), kGrid, expert);
  ASSERT_FALSE(back.ok());
  EXPECT_THAT(back.error().message, HasSubstr("layers.0.experts.3.weights"));
  for (const uint32_t hidden : {8u, 32u}) {
    const auto other = session_->register_units(registration(state_units(small_shape(hidden))));
    ASSERT_FALSE(other.ok()) << hidden;
    EXPECT_THAT(other.error().message, HasSubstr("unit")) << other.error().message;
  }
}

TEST_F(ExpertRestoreTest, RefusesNonFiniteState) {
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    step();
    for (const ParameterPart& part : model_->parts()) {
      if (part.spec.name.find("layers.1.block_sparse_moe.experts.0.w2") == std::string::npos) {
        continue;
      }
      part.state->v.host<float>()[part.at + 5] = wrong;
    }
    save(/*full=*/true);
    const auto back = read({4}, step_);
    ASSERT_FALSE(back.ok());
    EXPECT_EQ(back.error().code, ckpt::ErrorCode::kCorrupt);
    EXPECT_THAT(back.error().message,
                HasSubstr("unit layers.1.experts.0.optimizer: element 5 of "));
    EXPECT_TRUE(read({0}, step_).ok());
  }
}

TEST_F(ExpertRestoreTest, RefusesInvalidStamps) {
  step();
  save(/*full=*/true);
  const PartialState known = partial_.state();
  const std::vector<int64_t> updates = updates_;
  const std::vector<uint32_t> experts = {0, 1};
  for (const ExpertStamp& stamp :
       {ExpertStamp{0, 0, 0}, ExpertStamp{1, -1, 1}, ExpertStamp{1, 0, -2}, ExpertStamp{9, 0, 1},
        ExpertStamp{1, 1'000'000, 1}}) {
    step();
    forge_stamps(stamp);
    save_all_but("nothing");
    const auto back = read(experts, step_);
    if (!back.ok()) {
      EXPECT_EQ(back.error().code, ckpt::ErrorCode::kCorrupt) << back.error().message;
      continue;
    }
    std::vector<int64_t> changed = updates;
    EXPECT_FALSE(partial_.roll_back(experts, back->stamps(), routed_, changed).ok());
    EXPECT_EQ(changed, updates);
    EXPECT_EQ(partial_.state(), known);
  }
}

}  // namespace
}  // namespace moetrain
