// Groups of threads with sharded experts whose ranks join, leave and die in every phase of a
// re-cut.
#include "trainer/elastic/recut.h"

#include <gmock/gmock.h>

#include <utility>

#include "tests/trainer/elastic/damaging_comm.h"
#include "tests/trainer/elastic/live_state_ranks.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

struct ShardedRank : Rank {
  ShardedRank(const TrainConfig& with_config, std::span<const uint8_t> text, uint32_t ranks,
              uint32_t rank)
      : Rank(make_cpu_device(), with_config, text, ranks, rank, {}, ExpertState::kSharded),
        recut(*model) {}

  // The phases of a membership change; the rank dies before phase `dies_in`. The ranks in `stays`
  // (empty: all) hold all state afterwards.
  Status change(Comm& comm, const std::vector<bool>& stays = {}, int dies_in = -1) {
    CKPT_TRY(fail_in_phase(0, comm, dies_in));
    CKPT_ASSIGN(whole, recut.is_whole(comm, live.status()));
    if (!whole) return {};
    CKPT_TRY(live.agree(comm));
    CKPT_TRY(fail_in_phase(1, comm, dies_in));
    CKPT_TRY(recut.move(comm, stays, progress.step));
    live.is_whole();
    CKPT_TRY(fail_in_phase(2, comm, dies_in));
    CKPT_TRY(recut.commit(comm));
    CKPT_TRY(fail_in_phase(3, comm, dies_in));
    bytes_moved = recut.bytes_moved();
    return stays.empty() ? train_with(comm) : Status();
  }
  Status train_with(const Comm& comm) {
    CKPT_ASSIGN(placement, static_placement(kLayers, kExperts, comm.size()));
    CKPT_ASSIGN(auto store, make_expert_store(*device, config.model, placement,
                                              make_ownership(ExpertState::kSharded, placement),
                                              comm.rank(), recut.take()));
    CKPT_TRY(model->replace_experts(std::move(store)));
    model->parameters_changed();
    return {};
  }

  Recut recut;
  bool whole = false;
};

class RecutTest : public LiveStateRanks {
 protected:
  using Ranks = std::vector<std::unique_ptr<ShardedRank>>;
  using Body = std::function<Status(ShardedRank&, Comm&)>;

  std::unique_ptr<ShardedRank> make_sharded(uint32_t ranks, uint32_t rank) {
    return std::make_unique<ShardedRank>(config_, text_, ranks, rank);
  }
  Ranks start_sharded(uint32_t ranks) {
    Ranks group;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      group.push_back(make_sharded(ranks, rank));
      group.back()->model->initialise(config_.seed);
      group.back()->live.is_whole();
    }
    return group;
  }
  static std::vector<Status> on_all(Ranks& group, const Body& body) {
    auto comms = make_local_comms(static_cast<uint32_t>(group.size()));
    std::vector<Status> results(group.size());
    on_all_ranks(comms,
                 [&](Comm& comm) { results[comm.rank()] = body(*group[comm.rank()], comm); });
    return results;
  }
  static void expect_ok(const std::vector<Status>& results) {
    for (const Status& status : results) ASSERT_TRUE(status.ok()) << status.error().message;
  }
  static void train_sharded(Ranks& group, int steps) {
    for (int i = 0; i < steps; ++i) {
      expect_ok(on_all(group, [](ShardedRank& rank, Comm& comm) { return rank.step(comm); }));
    }
  }
  static void recut(Ranks& group, const std::vector<bool>& stays = {}) {
    expect_ok(
        on_all(group, [&](ShardedRank& rank, Comm& comm) { return rank.change(comm, stays); }));
  }
  static bool all_whole(const Ranks& group, bool whole) {
    return std::ranges::all_of(group, [whole](const auto& rank) { return rank->whole == whole; });
  }
};

TEST_F(RecutTest, GrowingAndShrinkingChangesNoBit) {
  Ranks group = start_sharded(2);
  train_sharded(group, 2);
  group.push_back(make_sharded(2, 0));  // joins with nothing
  group.push_back(make_sharded(2, 1));
  recut(group);
  ASSERT_TRUE(all_whole(group, true));
  train_sharded(group, 2);
  EXPECT_EQ(group[3]->progress, group[0]->progress);
  recut(group, {true, false, true, true});
  group.erase(group.begin() + 1);
  recut(group);
  ASSERT_TRUE(all_whole(group, true));
  EXPECT_EQ(group[0]->bytes_moved, 0u) << "ranks have their ranges since the one left";
  train_sharded(group, 2);
  EXPECT_EQ(group[0]->losses, undisturbed(6));
}

TEST_F(RecutTest, MovesEachElementThatChangesItsOwnerOnce) {
  Ranks group = start_sharded(2);
  group.push_back(make_sharded(2, 0));
  recut(group);
  const uint64_t elements = expert_parameter_count(config_.model);
  uint64_t dense = 0;
  for (const Parameter& parameter : group[0]->model->dense()) dense += parameter.value.size();
  // From halves to thirds: rank 0 keeps its third, rank 1 lacks the end of the first half, and the
  // third rank has nothing.
  const std::vector<ElementRange> thirds = cut_for({}, 3, elements);
  const uint64_t moved = (elements / 2 - thirds[1].begin) + thirds[2].size();
  EXPECT_EQ(group[0]->bytes_moved, 12 * (kLayers * kExperts * moved + dense));
}

// From halves to thirds, in one round. A rank that keeps its range has no second one.
TEST_F(RecutTest, MemoryIsOldAndNewRangesPlusBuffers) {
  Ranks group = start_sharded(2);
  train_sharded(group, 1);  // layers have buffers, which go before ranges move
  group.push_back(make_sharded(2, 0));
  recut(group);
  const uint64_t elements = expert_parameter_count(config_.model);
  const uint64_t experts = kLayers * kExperts;
  uint64_t dense = 0;
  for (const Parameter& parameter : group[0]->model->dense()) {
    dense += 12 * parameter.value.size() + kItemHeaderBytes;
  }
  const std::vector<ElementRange> halves = cut_for({}, 2, elements);
  const std::vector<ElementRange> thirds = cut_for({}, 3, elements);
  const auto moved = [&](uint64_t count) { return experts * (12 * count + kItemHeaderBytes); };
  const uint64_t to_rank_1 = moved(halves[0].end - thirds[1].begin);
  const uint64_t to_rank_2 = moved(thirds[2].size());
  // Both old ranks have the dense parameters: either sends them, or each sends some.
  const uint64_t sent_by_0 = group[0]->recut.memory().bytes -
                             24 * experts * (halves[0].size() + thirds[0].size()) - to_rank_1;
  const uint64_t sent_by_1 = group[1]->recut.memory().bytes -
                             24 * experts * (halves[1].size() + thirds[1].size()) - to_rank_1 -
                             to_rank_2;
  EXPECT_EQ(sent_by_0 + sent_by_1, dense);
  EXPECT_EQ(group[2]->recut.memory().bytes, 24 * experts * thirds[2].size() + to_rank_2 + dense);
  for (size_t rank = 0; rank < 3; ++rank) {
    const uint64_t old = rank < 2 ? halves[rank].size() : 0;
    EXPECT_EQ(group[rank]->recut.memory().bound,
              24 * experts * (old + thirds[rank].size()) + (64u << 20));
  }
  recut(group);
  EXPECT_EQ(group[0]->recut.memory().bytes, 24 * experts * thirds[0].size()) << "nothing moves";
}

// The store's layer buffers must not add to the memory of the old and the new range.
TEST_F(RecutTest, ReleasedStoreKeepsNoMemory) {
  Ranks group = start_sharded(2);
  train_sharded(group, 1);
  ExpertStore& store = group[0]->model->experts();
  ASSERT_GT(store.memory_bytes(), 0u);
  const std::vector<OwnedRange> released = store.release();
  EXPECT_EQ(released.size(), kLayers * kExperts);
  EXPECT_EQ(store.memory_bytes(), 0u);
}

TEST_F(RecutTest, LostRankLeavesGroupIncomplete) {
  Ranks group = start_sharded(3);
  train_sharded(group, 1);
  group.erase(group.begin() + 1);
  recut(group);
  EXPECT_TRUE(all_whole(group, false));
  EXPECT_EQ(group[0]->progress.step, 1u);
}

// The step that was in flight is applied by no rank: the lost one has a part of its gradients.
TEST_F(RecutTest, NoRankAppliesPendingStepAfterLoss) {
  Ranks group = start_sharded(3);
  train_sharded(group, 1);
  (void)on_all(group, [&](ShardedRank& rank, Comm& comm) -> Status {
    CKPT_ASSIGN(PendingStep pending, rank.trainer.compute(comm, *rank.model, rank.progress));
    rank.live.set_pending(std::move(pending));
    if (&rank == group[0].get()) {
      (void)rank.trainer.apply(*rank.model, rank.progress, rank.live.take_pending());
    }
    return {};
  });
  group.pop_back();
  recut(group);
  EXPECT_TRUE(all_whole(group, false));
  EXPECT_EQ(group[0]->progress.step, 2u);
  EXPECT_EQ(group[1]->progress.step, 1u);
}

// The group was lost, but no rank: the step is applied by all ranks.
TEST_F(RecutTest, CompleteGroupAppliesPendingStep) {
  Ranks group = start_sharded(2);
  train_sharded(group, 1);
  (void)on_all(group, [&](ShardedRank& rank, Comm& comm) -> Status {
    CKPT_ASSIGN(PendingStep pending, rank.trainer.compute(comm, *rank.model, rank.progress));
    rank.live.set_pending(std::move(pending));
    if (&rank == group[0].get()) {
      rank.losses.push_back(
          rank.trainer.apply(*rank.model, rank.progress, rank.live.take_pending()).loss);
    }
    return {};
  });
  recut(group);
  ASSERT_TRUE(all_whole(group, true));
  train_sharded(group, 2);
  EXPECT_EQ(group[0]->losses, undisturbed(4));
}

// A lost rank loses its range. A lost joining rank costs nothing while all old ranges still exist.
TEST_F(RecutTest, JoinerLossBeforeCommitKeepsRanges) {
  constexpr size_t kJoiner = 2;
  for (int phase = 0; phase <= 3; ++phase) {
    for (size_t who = 0; who <= kJoiner; ++who) {
      SCOPED_TRACE(testing::Message() << "rank " << who << " in phase " << phase);
      Ranks group = start_sharded(2);
      train_sharded(group, 2);
      group.push_back(make_sharded(2, 0));
      (void)on_all(group, [&](ShardedRank& rank, Comm& comm) {
        return rank.change(comm, {}, &rank == group[who].get() ? phase : -1);
      });
      group.erase(group.begin() + static_cast<ptrdiff_t>(who));
      recut(group);
      // The state after a joiner's death behind the commit depends on who has left the barrier.
      if (who != kJoiner || phase <= 2) {
        EXPECT_TRUE(all_whole(group, who == kJoiner));
      }
      if (!group[0]->whole) continue;
      train_sharded(group, 2);
      EXPECT_EQ(group[0]->losses, undisturbed(4));
    }
  }
}

// Some ranks leave the barrier, others are cut off in it, and none is lost: all complete the
// re-cut.
TEST_F(RecutTest, AllRanksCompleteRecutThatSomeCompleted) {
  Ranks group = start_sharded(2);
  train_sharded(group, 2);
  group.push_back(make_sharded(2, 0));
  (void)on_all(group, [&](ShardedRank& rank, Comm& comm) -> Status {
    CKPT_ASSIGN(rank.whole, rank.recut.is_whole(comm, rank.live.status()));
    CKPT_TRY(rank.live.agree(comm));
    CKPT_TRY(rank.recut.move(comm, {}, rank.progress.step));
    rank.live.is_whole();
    if (&rank != group[0].get()) return comm.barrier();
    CKPT_TRY(rank.recut.commit(comm));
    return rank.train_with(comm);
  });
  recut(group);
  ASSERT_TRUE(all_whole(group, true));
  train_sharded(group, 2);
  EXPECT_EQ(group[0]->losses, undisturbed(4));
  EXPECT_EQ(group[2]->progress, group[1]->progress);
}

TEST_F(RecutTest, DamagedTransferIsRetried) {
  Ranks group = start_sharded(2);
  train_sharded(group, 2);
  group.push_back(make_sharded(2, 0));
  const auto damaged = on_all(group, [&](ShardedRank& rank, Comm& comm) {
    if (&rank != group[2].get()) return rank.change(comm);
    DamagingComm damaging(comm);
    const Status status = rank.change(damaging);
    comm.abort("it came damaged");
    return status;
  });
  ASSERT_FALSE(damaged[2].ok());
  EXPECT_EQ(damaged[2].error().code, ckpt::ErrorCode::kAborted);
  EXPECT_THAT(damaged[2].error().message, HasSubstr("step 2: "));
  EXPECT_THAT(damaged[2].error().message, HasSubstr("as it was sent (CRC32C); once more"));
  recut(group);
  ASSERT_TRUE(all_whole(group, true));
  train_sharded(group, 1);
  EXPECT_EQ(group[0]->losses, undisturbed(3));
}

}  // namespace
}  // namespace moetrain
