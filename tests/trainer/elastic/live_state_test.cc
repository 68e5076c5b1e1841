// Groups of threads that change while they train, and lose members in every phase.
#include "trainer/elastic/live_state.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "tests/trainer/elastic/damaging_comm.h"
#include "tests/trainer/elastic/live_state_ranks.h"

namespace moetrain {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class LiveStateTest : public LiveStateRanks {};

TEST_F(LiveStateTest, ShrinkingAndGrowingChangesNoBit) {
  Group group = start(3, twice_);
  train(group, 2);
  group.erase(group.begin() + 1);
  change(group);
  EXPECT_THAT(group[0]->live.lost(), IsEmpty());
  train(group, 2);
  group.push_back(make(3, 2, twice_));  // joins with nothing
  change(group);
  train(group, 2);
  EXPECT_EQ(group[0]->losses, undisturbed(6));
  EXPECT_EQ(group[2]->progress, group[0]->progress);
  EXPECT_EQ(group[2]->partial.handover(), group[0]->partial.handover());
  group.erase(group.begin());  // each of its experts is held by the joining or the other rank, too
  change(group);
  EXPECT_THAT(group[0]->live.lost(), IsEmpty());
  train(group, 1);
  EXPECT_EQ(group[1]->losses.back(), undisturbed(7).back());
}

// A receiver or sender dies in each phase; the survivors continue with the state that they hold.
TEST_F(LiveStateTest, LossInAnyPhaseKeepsReplicatedExperts) {
  const std::vector<float> expected = undisturbed(5);
  for (int phase = 0; phase <= 4; ++phase) {
    for (size_t who = 0; who < 3; ++who) {
      SCOPED_TRACE(testing::Message() << "rank " << who << " in phase " << phase);
      Group group = start(4, {.policy = PolicyName::kLazarus, .slots = 5, .replicas_min = 3});
      train(group, 3);
      group.erase(group.begin() + 3);
      (void)all(group, [&](Rank& rank, Comm& comm) {
        return rank.change(comm, &rank == group[who].get() ? phase : -1);
      });
      group.erase(group.begin() + static_cast<ptrdiff_t>(who));
      change(group);
      EXPECT_THAT(group[0]->live.lost(), IsEmpty());
      train(group, 2);
      EXPECT_EQ(group[0]->losses, expected);
    }
  }
}

TEST_F(LiveStateTest, MigrationWithoutMembershipChangeChangesNoBit) {
  for (const PlacementOptions& choice : {twice_, PlacementOptions{}}) {
    Group group = start(3, choice);
    train(group, 2);
    const LayerSlots before = group[0]->placement.slots[0];
    for (const Status& status : all(group, [](Rank&r, Comm&c) { return r.rotate(c); })) {
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
    EXPECT_EQ(group[0]->placement.slots[0][0], before[1]);
    EXPECT_EQ(group[2]->placement, group[0]->placement);
    EXPECT_THAT(group[0]->live.lost(), IsEmpty());
    EXPECT_GT(group[0]->bytes_moved, 0u);
    train(group, 2);
    EXPECT_EQ(group[0]->losses, undisturbed(4));
    EXPECT_EQ(group[0]->lost_tokens, 0);
  }
}

TEST_F(LiveStateTest, LossDuringMigrationKeepsReplicatedExperts) {
  const std::vector<float> expected = undisturbed(5);
  for (int phase = 1; phase <= 4; ++phase) {
    for (size_t who = 0; who < 3; ++who) {
      SCOPED_TRACE(testing::Message() << "rank " << who << " in phase " << phase);
      Group group = start(3, twice_);
      train(group, 3);
      (void)all(group, [&](Rank& rank, Comm& comm) {
        return rank.rotate(comm, &rank == group[who].get() ? phase : -1);
      });
      group.erase(group.begin() + static_cast<ptrdiff_t>(who));
      change(group);
      EXPECT_THAT(group[0]->live.lost(), IsEmpty());
      train(group, 2);
      EXPECT_EQ(group[0]->losses, expected);
    }
  }
}

TEST_F(LiveStateTest, LostExpertsRollBackAloneAndCountOnce) {
  Group group = start(3, {});
  train(group, 3);
  const Progress before = group[0]->progress;
  const std::vector<uint32_t> lost = group[2]->placement.slots[0][2];
  group.pop_back();
  // One rank settles, the other does not: both must end with the same loss.
  (void)all(group, [&](Rank& rank, Comm& comm) {
    return rank.change(comm, &rank == group[1].get() ? 4 : -1);
  });
  change(group);
  int64_t tokens = 0;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const uint32_t expert : lost) tokens += before.routed_tokens[layer * kExperts + expert];
  }
  EXPECT_GT(tokens, 0);
  for (const auto& rank : group) {
    EXPECT_EQ(rank->lost_tokens, tokens);
    EXPECT_EQ(rank->versions, std::vector<int64_t>(kLayers * lost.size(), -1)) << "from the seed";
    EXPECT_EQ(rank->progress.step, 3u) << "nobody rewinds";
    EXPECT_EQ(rank->progress.expert_updates[lost[0]], 0);
    EXPECT_EQ(rank->progress.expert_updates[0], 3) << "others keep what they are";
  }
  change(group);
  EXPECT_EQ(group[0]->lost_tokens, tokens) << "a later change loses nothing more";
  train(group, 2);
  EXPECT_EQ(group[0]->losses, group[1]->losses);
}

// Only one rank has applied a new pace before the change. Afterwards it is in force on all ranks or
// on none, and a joining rank takes part in the next decision.
TEST_F(LiveStateTest, RanksAgreeOnPaceAfterMembershipChange) {
  Group group = start(3, twice_);
  train(group, 2);
  // One value per measurement, one failure, and no missing measurement.
  const std::vector<int64_t> measured = {100'000'000, 1'000'000, 900'000'000, 0, 2, 5'000'000, 0};
  ASSERT_TRUE(group[0]->pacer.decide(18, measured).has_value());
  ASSERT_NE(group[0]->pacer.every(), group[1]->pacer.every());
  const PaceState agreed = group[0]->pacer.state();
  group.pop_back();
  change(group);
  EXPECT_EQ(group[1]->pacer.state(), group[0]->pacer.state());
  EXPECT_EQ(group[1]->pacer.every(), agreed.every);
  EXPECT_EQ(group[1]->pacer.state().failures, 2u);
  group.push_back(make(3, 2, twice_));
  change(group);
  EXPECT_EQ(group[2]->pacer.state(), group[0]->pacer.state());
  EXPECT_EQ(group[2]->pacer.every(), agreed.every);
}

// Each rank restores its own experts, but all ranks must know which versions are on no disk.
TEST_F(LiveStateTest, AllRanksKnowExpertsRestoredFromMemory) {
  Group group = start(3, {});
  train(group, 3);
  const std::vector<uint32_t> lost = group[2]->placement.slots[0][2];
  group.pop_back();
  for (const auto& rank : group) rank->in_memory = {lost.begin(), lost.end()};
  change(group);
  const PartialHandover known = group[0]->partial.handover();
  EXPECT_EQ(group[1]->partial.handover(), known);
  for (uint32_t expert = 0; expert < kExperts; ++expert) {
    const bool memory_only = std::ranges::count(lost, expert) != 0;
    EXPECT_EQ(known.saved[expert] != known.kept[expert], memory_only) << expert;
  }
}

// A step that one rank has applied is applied by all ranks, from their unchanged gradients.
TEST_F(LiveStateTest, RankBehindAppliesPendingStep) {
  Group group = start(3, twice_);
  train(group, 1);
  (void)all(group, [&](Rank& rank, Comm& comm) -> Status {
    CKPT_ASSIGN(PendingStep pending, rank.trainer.compute(comm, *rank.model, rank.progress));
    rank.live.set_pending(std::move(pending));
    if (&rank != group[1].get()) return {};
    rank.losses.push_back(
        rank.trainer.apply(*rank.model, rank.progress, rank.live.take_pending()).loss);
    return {};
  });
  group.pop_back();
  change(group);
  ASSERT_TRUE(group[0]->live.late_step().has_value());
  EXPECT_EQ(group[0]->live.late_step()->loss, group[1]->losses.back());
  EXPECT_FALSE(group[1]->live.late_step().has_value());
  train(group, 2);
  const std::vector<float> expected = undisturbed(4);
  EXPECT_EQ(group[1]->losses, expected);
}

// The returning rank is at the same step as the survivors, but its copy of the experts that they
// lost and initialised again is stale. The new ones have zero moments on every rank.
TEST_F(LiveStateTest, ReturningRankBringsNoState) {
  Group group = start(3, {});
  train(group, 3);
  std::unique_ptr<Rank> behind = std::move(group.back());
  group.resize(1);
  change(group);
  const std::vector<uint32_t> lost = group[0]->live.lost();
  ASSERT_FALSE(lost.empty());
  behind->live.forget();
  group.push_back(std::move(behind));
  change(group);
  for (const auto& rank : group) {
    for (const OwnedRange& expert : rank->model->experts().owned()) {
      if (std::ranges::count(lost, expert.layer * kExperts + expert.expert) == 0) continue;
      const std::span<const float> moments = expert.m.host<float>();
      EXPECT_THAT(moments, testing::Each(0)) << expert.layer << "." << expert.expert;
    }
  }
  train(group, 1);
  EXPECT_EQ(group[0]->losses.back(), group[1]->losses.back());
}

TEST_F(LiveStateTest, DamagedTransferIsRetriedTwice) {
  for (const int times : {2, 3}) {
    Group group = start(2, {});
    train(group, 2);
    group.push_back(make(3, 2, {}));
    Status last;
    for (int i = 0; i < times; ++i) {
      last = all(group, [&](Rank& rank, Comm& comm) -> Status {
        if (&rank != group[2].get()) return rank.change(comm);
        DamagingComm damaging(comm);
        Status changed = rank.change(damaging);
        comm.abort("it leaves");
        return changed;
      })[2];
    }
    ASSERT_FALSE(last.ok());
    EXPECT_THAT(last.error().message,
                HasSubstr("did not come from rank 1 as it was sent (CRC32C)"));
    EXPECT_EQ(last.error().code, times < 3 ? ckpt::ErrorCode::kAborted : ckpt::ErrorCode::kCorrupt);
    change(group);
    train(group, 1);
    EXPECT_EQ(group[2]->losses.back(), undisturbed(3).back());
  }
}

TEST_F(LiveStateTest, DifferentPlansFailBeforeAnyMove) {
  Group group = start(2, twice_);
  train(group, 1);
  const auto planned = all(group, [&](Rank& rank, Comm& comm) -> Status {
    CKPT_TRY(rank.live.agree(comm));
    return rank.live.plan(comm, [&](uint32_t, const auto&, const auto&) {
      ComputePlacement other = rank.placement;
      if (comm.rank() == 1) std::swap(other.slots[0][0], other.slots[0][1]);
      return Result<ComputePlacement>(other);
    });
  });
  for (const Status& status : planned) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ckpt::ErrorCode::kFailedPrecondition);
    EXPECT_THAT(status.error().message, HasSubstr("rank 1 has planned another placement"));
  }
}

}  // namespace
}  // namespace moetrain
