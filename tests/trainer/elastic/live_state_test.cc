// Groups of threads that change while they train, and lose members in every phase.
#include "trainer/elastic/live_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/trainer/elastic/damaging_comm.h"
#include "tests/trainer/parallel/comm_groups.h"
#include "tests/trainer/training/training.h"
#include "trainer/checkpoint/units.h"
#include "trainer/elastic/next_placement.h"

namespace moetrain {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kLayers = 2;
constexpr uint32_t kExperts = 6;

// A share for each of up to six ranks.
TrainConfig six_sequences() {
  TrainConfig config = small_config(kExperts);
  config.micro_batches = 1;
  config.batch = 6;
  return config;
}

std::unique_ptr<Model> make_model(Device& device, const TrainConfig& config,
                                  const ExpertPlacement& placement, uint32_t rank) {
  auto store = make_replicated_store(device, config.model, placement, rank);
  return std::move(Model::create(device, config.model, std::move(store).value())).value();
}

// One rank without a daemon.
struct Rank {
  Rank(const TrainConfig& with_config, std::span<const uint8_t> text, uint32_t ranks, uint32_t rank,
       const PlacementOptions& with_choice)
      : config(with_config),
        choice(with_choice),
        units(state_units(config.model)),
        placement(*place_experts(choice, config.model, ranks, {})),
        device(make_cpu_device()),
        model(make_model(*device, config, placement, rank)),
        trainer(config, text),
        stamps({kLayers, kExperts}),
        partial(units, placement, {}),
        live(LiveState::Parts{*model, trainer, progress, partial, stamps, placement, saved_step,
                              last_loss}) {}

  Status step(Comm& comm) {
    CKPT_ASSIGN(PendingStep pending, trainer.compute(comm, *model, progress));
    live.set_pending(std::move(pending));
    CKPT_TRY(comm.barrier());
    losses.push_back(trainer.apply(*model, progress, live.take_pending()).loss);
    return {};
  }
  static Status gone_in(int phase, Comm& comm, int dies_in) {
    if (phase != dies_in) return {};
    comm.abort("it is gone");
    return ckpt::make_error(ckpt::ErrorCode::kAborted, "gone");
  }
  // The phases of a change; before number `dies_in` it is gone.
  Status change(Comm& comm, int dies_in = -1) {
    CKPT_TRY(gone_in(0, comm, dies_in));
    CKPT_TRY(live.agree(comm));
    const PlanPlacement planner = [this](uint32_t ranks, const auto& routed, const auto& held) {
      auto placed = place_experts(choice, config.model, ranks, routed);
      return placed.ok() ? Result<ExpertPlacement>(keep_in_place(*placed, held)) : placed;
    };
    return change_places(comm, planner, dies_in);
  }
  // The members stay, and every rank gets what the one after it has had.
  Status rotate(Comm& comm, int dies_in = -1) {
    live.stay(comm.size());
    ExpertPlacement next = placement;
    for (LayerSlots& layer : next.slots) std::rotate(layer.begin(), layer.begin() + 1, layer.end());
    const PlanPlacement planner = [next](uint32_t, const auto&, const auto&) {
      return Result<ExpertPlacement>(next);
    };
    return change_places(comm, planner, dies_in);
  }
  Status change_places(Comm& comm, const PlanPlacement& planner, int dies_in) {
    CKPT_TRY(gone_in(1, comm, dies_in));
    CKPT_TRY(live.plan(comm, planner));
    CKPT_TRY(gone_in(2, comm, dies_in));
    CKPT_TRY(live.move(comm));
    CKPT_TRY(gone_in(3, comm, dies_in));
    CKPT_TRY(live.commit(comm));
    CKPT_TRY(gone_in(4, comm, dies_in));
    for (Expert& expert : model->experts().owned()) {
      if (!live.lost_here().contains(expert.layer * kExperts + expert.expert)) continue;
      for (Parameter* parameter : {&expert.w1, &expert.w2, &expert.w3}) {
        initialise(*parameter, config.seed, config.model.init_range);
      }
      stamps.at(ExpertPart::kWeights, expert.layer * kExperts + expert.expert) = {};
      stamps.at(ExpertPart::kOptimizer, expert.layer * kExperts + expert.expert) = {};
    }
    CKPT_ASSIGN(const auto settled, live.settle(comm));
    lost_tokens += settled.lost_tokens;
    bytes_moved = settled.bytes_moved;
    versions = settled.versions;
    return {};
  }

  const TrainConfig& config;
  const PlacementOptions choice;
  const std::vector<StateUnit> units;
  ExpertPlacement placement;
  const std::unique_ptr<Device> device;  // its own: it has scratch memory
  std::unique_ptr<Model> model;
  Trainer trainer;
  Progress progress;
  ExpertStamps stamps;
  PartialCheckpoint partial;
  uint64_t saved_step = 0;
  float last_loss = 0;
  LiveState live;
  std::vector<float> losses;
  int64_t lost_tokens = 0;
  uint64_t bytes_moved = 0;       // by the last change
  std::vector<int64_t> versions;  // of the last change
};

class LiveStateTest : public testing::Test {
 protected:
  LiveStateTest() {
    for (uint32_t i = 0; text_.size() < 4000; ++i) {
      text_.push_back(static_cast<uint8_t>("the expert routes a token "[i * i % 26]));
    }
  }
  using Group = std::vector<std::unique_ptr<Rank>>;

  std::unique_ptr<Rank> make(uint32_t ranks, uint32_t rank, const PlacementOptions& choice) {
    return std::make_unique<Rank>(config_, text_, ranks, rank, choice);
  }
  Group start(uint32_t ranks, const PlacementOptions& choice) {
    Group group;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      group.push_back(make(ranks, rank, choice));
      group.back()->model->initialise(config_.seed);
      group.back()->live.is_whole();
    }
    return group;
  }
  static std::vector<Status> all(Group& group, const std::function<Status(Rank&, Comm&)>& body) {
    auto comms = make_local_comms(static_cast<uint32_t>(group.size()));
    std::vector<Status> results(group.size());
    on_all_ranks(comms,
                 [&](Comm& comm) { results[comm.rank()] = body(*group[comm.rank()], comm); });
    return results;
  }
  static void train(Group& group, int steps) {
    for (int i = 0; i < steps; ++i) {
      for (const Status& status : all(group, [](Rank&r, Comm&c) { return r.step(c); })) {
        ASSERT_TRUE(status.ok()) << status.error().message;
      }
    }
  }
  static void change(Group& group) {
    for (const Status& status : all(group, [](Rank&r, Comm&c) { return r.change(c); })) {
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  }
  std::vector<float> undisturbed(int steps) {
    Group group = start(2, {});
    train(group, steps);
    return group[0]->losses;
  }

  const TrainConfig config_ = six_sequences();
  std::vector<uint8_t> text_;
  const PlacementOptions twice_{.policy = PolicyName::kLazarus, .slots = 4, .replicas_min = 2};
};

TEST_F(LiveStateTest, GroupsShrinkAndGrowWithoutChangingABit) {
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
  group.erase(group.begin());  // what it held the joiner holds as well, or the other one
  change(group);
  EXPECT_THAT(group[0]->live.lost(), IsEmpty());
  train(group, 1);
  EXPECT_EQ(group[1]->losses.back(), undisturbed(7).back());
}

// In every phase one of the receivers or senders is gone; the rest go on from what they hold.
TEST_F(LiveStateTest, ALossInAnyPhaseLosesNothingThatIsHeldTwice) {
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

TEST_F(LiveStateTest, ExpertsMoveWhileTheMembersStayWithoutChangingABit) {
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

TEST_F(LiveStateTest, ALossWhileExpertsMoveLosesNothingThatIsHeldTwice) {
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

TEST_F(LiveStateTest, WhatNobodyHoldsRollsBackAloneAndIsCountedOnce) {
  Group group = start(3, {});
  train(group, 3);
  const Progress before = group[0]->progress;
  const std::vector<uint32_t> lost = group[2]->placement.slots[0][2];
  group.pop_back();
  // One settles, the other does not: the loss must be the same for both in the end.
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

// A step that one has applied is applied by all: from gradients that stayed as they were.
TEST_F(LiveStateTest, WhoIsBehindAppliesWhatIsPending) {
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

// It is at the same step as the others, but not with what they lost and made anew meanwhile: that
// has no moments yet, on any rank that holds it.
TEST_F(LiveStateTest, WhoWasLeftBehindBringsNothing) {
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
    for (Expert& expert : rank->model->experts().owned()) {
      if (std::ranges::count(lost, expert.layer * kExperts + expert.expert) == 0) continue;
      const std::span<const float> moments = std::as_const(expert.w1.m).host<float>();
      EXPECT_THAT(moments, testing::Each(0)) << expert.layer << "." << expert.expert;
    }
  }
  train(group, 1);
  EXPECT_EQ(group[0]->losses.back(), group[1]->losses.back());
}

TEST_F(LiveStateTest, WhatComesDamagedIsSentTwiceMore) {
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

TEST_F(LiveStateTest, RanksThatPlanDifferentlyAreToldBeforeAnythingMoves) {
  Group group = start(2, twice_);
  train(group, 1);
  const auto planned = all(group, [&](Rank& rank, Comm& comm) -> Status {
    CKPT_TRY(rank.live.agree(comm));
    return rank.live.plan(comm, [&](uint32_t, const auto&, const auto&) {
      ExpertPlacement other = rank.placement;
      if (comm.rank() == 1) std::swap(other.slots[0][0], other.slots[0][1]);
      return Result<ExpertPlacement>(other);
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
