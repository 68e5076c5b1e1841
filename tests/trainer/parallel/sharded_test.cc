// Fully sharded experts: the numbers of replicated static placement, for any assignment of tokens.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/trainer/model/ranks.h"
#include "tests/trainer/parallel/sharded_run.h"
#include "trainer/loop.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/parallel/shard_layout.h"
#include "trainer/parallel/sharded_store.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSteps = 60;

// Slots for every expert, and for some replicas.
uint32_t slots_of(const ModelConfig& shape, uint32_t ranks) {
  return (shape.experts + ranks - 1) / ranks + 2;
}

// Another random placement at every step.
PlacementOfStep changing(const ModelConfig& shape, uint32_t ranks) {
  return [=](uint64_t step) {
    return random_placement(shape, ranks, slots_of(shape, ranks), 100 * ranks + step);
  };
}
PlacementOfStep always(ComputePlacement placement) {
  return [placement = std::move(placement)](uint64_t) { return placement; };
}

ShardedResult replicated(const TrainConfig& config, uint32_t ranks, uint64_t steps = kSteps) {
  const ModelConfig& shape = config.model;
  return train_sharded(
      {.config = config,
       .state = ExpertState::kReplicated,
       .ranks = ranks,
       .steps = steps,
       .placement = always(*static_placement(shape.layers, shape.experts, ranks))});
}
ShardedResult sharded(const TrainConfig& config, uint32_t ranks, uint64_t steps = kSteps,
                      CommKind kind = CommKind::kLocal) {
  return train_sharded({.config = config,
                        .ranks = ranks,
                        .steps = steps,
                        .placement = changing(config.model, ranks),
                        .kind = kind});
}

struct Case {
  const char* name;
  TrainConfig config;
  std::vector<uint32_t> ranks;
};

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"top2", small_config(), {1, 2, 3, 4, 8}},       {"top1", small_config(), {3, 8}},
      {"three micro-batches", small_config(), {2, 4}}, {"clipping", small_config(), {4, 8}},
      {"idle experts", small_config(8), {3, 4}},       {"odd shape", odd_config(), {2, 3, 4, 8}}};
  all[1].config.model.top_k = 1;
  all[2].config.micro_batches = 3;
  all[3].config.adamw.clip_norm = 0.05;
  all[4].config.adamw.idle_experts = IdleExperts::kSkip;
  all[4].config.model.router_skew = 4;  // so that some experts are idle
  all[4].config.batch = 1;
  all[4].config.micro_batches = 1;
  return all;
}

// The reference is one rank: replicated static placement has its bits on any number of ranks
// (ReplicasTest, and the test below for these numbers of ranks).
TEST(Sharded, SixtyStepsMatchReplicatedStaticPlacement) {
  for (const Case& test : cases()) {
    const ShardedResult expected = replicated(test.config, 1);
    std::vector<double> norms;
    for (const uint32_t ranks : test.ranks) {
      const std::string where = fmt::format("{}, ranks {}", test.name, ranks);
      const ShardedResult got = sharded(test.config, ranks);
      EXPECT_EQ(got.loss_bits, expected.loss_bits) << where;
      EXPECT_EQ(got.state, expected.state) << where;
      ASSERT_EQ(got.norms.size(), kSteps) << where;
      for (size_t step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(got.norms[step], expected.norms[step], 1e-12 * expected.norms[step]) << where;
      }
      if (norms.empty()) norms = got.norms;
      EXPECT_EQ(got.norms, norms) << where << ": the same bits for any number of ranks";
    }
  }
}

TEST(Sharded, StaticPlacementHasSameBitsOnSeveralRanks) {
  const ShardedResult expected = replicated(small_config(), 1);
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    const ShardedResult got = replicated(small_config(), ranks);
    EXPECT_EQ(got.loss_bits, expected.loss_bits) << ranks;
    EXPECT_EQ(got.state, expected.state) << ranks;
  }
}

// Lite routing sends tokens to other replicas; where a row is computed changes no bit of it.
TEST(Sharded, NodesOfRanksChangeNoBit) {
  const TrainConfig config = small_config();
  const ShardedResult expected = replicated(config, 1, 20);
  for (const uint32_t ranks : {2u, 4u}) {
    const PlacementOfStep without_nodes = changing(config.model, ranks);
    ShardedRun run{.config = config, .ranks = ranks, .steps = 20};
    run.placement = [&](uint64_t step) {
      ComputePlacement placement = without_nodes(step);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        placement.node_of_rank.push_back(step % 2 == 0 ? rank : rank % 2);
      }
      return placement;
    };
    const ShardedResult got = train_sharded(run);
    EXPECT_EQ(got.loss_bits, expected.loss_bits) << ranks;
    EXPECT_EQ(got.state, expected.state) << ranks;
  }
}

// The cases do what their names say: otherwise equal bits would show nothing.
TEST(Sharded, CasesClipAndLeaveExpertsIdle) {
  const std::vector<Case> all = cases();
  const ShardedResult clipped = replicated(all[3].config, 1, 5);
  for (const double norm : clipped.norms) EXPECT_GT(norm, all[3].config.adamw.clip_norm);
  TrainConfig updates = all[4].config;
  updates.adamw.idle_experts = IdleExperts::kUpdate;
  EXPECT_NE(replicated(updates, 1, 5).state, replicated(all[4].config, 1, 5).state);
}

TEST(Sharded, ProcessesOverGlooComputeTheSame) {
  const ShardedResult local = sharded(small_config(), 3, 4);
  const ShardedResult gloo = sharded(small_config(), 3, 4, CommKind::kGloo);
  EXPECT_EQ(gloo.loss_bits, local.loss_bits);
  EXPECT_EQ(gloo.state, local.state);
  EXPECT_EQ(gloo.traffic, local.traffic);
}

// Two restores of D * (S - own) * 4 bytes and one re-shard of own * 8 for each replica elsewhere,
// per rank, micro-batch and layer. Counted here from the slots alone.
TEST(Sharded, TrafficMatchesClosedForms) {
  for (const TrainConfig& config : {small_config(), odd_config()}) {
    const ModelConfig& shape = config.model;
    const uint64_t elements = expert_parameter_count(shape);
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
      const PlacementOfStep placement_of = changing(shape, ranks);
      const ShardedResult got = sharded(config, ranks, 4);
      for (uint64_t step = 0; step < 4; ++step) {
        const ComputePlacement placement = placement_of(step);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          const uint64_t own = elements * (rank + 1) / ranks - elements * rank / ranks;
          StepTraffic expected = got.traffic[rank][step];
          expected.weights = expected.gradients = 0;
          for (const LayerSlots& layer : placement.slots) {
            for (uint32_t peer = 0; peer < ranks; ++peer) {
              const std::set<uint32_t> distinct(layer[peer].begin(), layer[peer].end());
              if (peer == rank) expected.weights += 2 * distinct.size() * (elements - own) * 4;
              if (peer != rank) expected.gradients += distinct.size() * own * 8;
            }
          }
          expected.weights *= config.micro_batches;
          expected.gradients *= config.micro_batches;
          EXPECT_EQ(got.traffic[rank][step], expected) << "rank " << rank << " of " << ranks;
        }
      }
    }
  }
}

TEST(Sharded, MemoryIsBounded) {
  for (const TrainConfig& config : {small_config(), odd_config()}) {
    const ModelConfig& shape = config.model;
    const uint64_t elements = expert_parameter_count(shape);
    for (const uint32_t ranks : {1u, 2u, 4u, 8u}) {
      const uint64_t owned = 24 * shape.experts * shape.layers * ((elements + ranks - 1) / ranks);
      const uint64_t slots = slots_of(shape, ranks);
      const ShardedResult got = sharded(config, ranks, 12);
      for (const uint64_t bytes : got.memory_bytes) {
        EXPECT_LE(bytes, owned + slots * elements * (3 * 4 + 2 * 8 + 16)) << "ranks " << ranks;
        EXPECT_GT(bytes, 24 * shape.experts * shape.layers * (elements / ranks));
      }
    }
  }
}

std::unique_ptr<ExpertStore> store_of(const ComputePlacement& placement, ExpertState state,
                                      uint32_t rank = 0) {
  auto store = make_expert_store(cpu_device(), small_config().model, placement,
                                 make_ownership(state, placement), rank);
  CKPT_ASSERT_MSG(store.ok(), store.error().message);
  return std::move(store).value();
}

// State keeps its addresses and its values: a new placement moves no byte of it.
TEST(Sharded, ANewPlacementMovesNoState) {
  const ModelConfig shape = small_config().model;
  const auto store = store_of(random_placement(shape, 4, 3, 1), ExpertState::kSharded, 2);
  std::vector<const std::byte*> addresses;
  float next = 1;
  for (OwnedRange& range : store->owned()) {
    for (Tensor* tensor : {&range.value, &range.m, &range.v}) {
      addresses.push_back(tensor->data());
      for (float& element : tensor->host<float>()) element = next++;
    }
  }
  const Ownership before = store->ownership();
  for (uint64_t seed = 2; seed < 20; ++seed) {
    const ComputePlacement next_placement = random_placement(shape, 4, 3, seed);
    ASSERT_TRUE(store->set_placement(next_placement).ok());
    EXPECT_EQ(store->placement(), next_placement);
  }
  EXPECT_EQ(store->ownership(), before);
  EXPECT_EQ(store->traffic(), ExpertTraffic());
  float expected = 1;
  size_t at = 0;
  for (OwnedRange& range : store->owned()) {
    for (Tensor* tensor : {&range.value, &range.m, &range.v}) {
      EXPECT_EQ(tensor->data(), addresses[at++]);
      for (const float element : tensor->host<float>()) ASSERT_EQ(element, expected++);
    }
  }
}

TEST(Sharded, RefusesAPlacementThatWouldMoveState) {
  const ModelConfig shape = small_config().model;
  const ComputePlacement two = random_placement(shape, 2, 4, 1);
  const auto store = store_of(two, ExpertState::kSharded);
  const Status other_ranks = store->set_placement(random_placement(shape, 3, 4, 1));
  ASSERT_FALSE(other_ranks.ok());
  EXPECT_EQ(other_ranks.error().code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_THAT(other_ranks.error().message, HasSubstr("cut for 2 ranks, the placement has 3"));
  ComputePlacement incomplete = two;
  for (auto& slots : incomplete.slots[1]) std::erase(slots, 3u);
  EXPECT_FALSE(store->set_placement(incomplete).ok());
  EXPECT_EQ(store->placement(), two) << "nothing changed";

  const auto whole = store_of(*static_placement(2, 4, 2), ExpertState::kReplicated);
  const Status moves =
      whole->set_placement(*make_placement({{{2, 3}, {0, 1}}, {{2, 3}, {0, 1}}}, 4, 2));
  ASSERT_FALSE(moves.ok());
  EXPECT_EQ(moves.error().code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(whole->set_placement(*static_placement(2, 4, 2)).ok());
}

TEST(Sharded, RefusesMoreRanksThanElements) {
  ModelConfig shape = small_config().model;
  shape.hidden = 2;
  shape.intermediate = 1;
  const ComputePlacement placement = random_placement(shape, 7, 4, 1);
  const auto store = make_expert_store(cpu_device(), shape, placement,
                                       Ownership::sharded(shape.layers, shape.experts, 7), 0);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.error().message, HasSubstr("7 ranks for experts of 6 parameters"));
}

// A released range keeps its memory and its values in the next store of the same ranks.
TEST(Sharded, NewStoreReusesReleasedRanges) {
  const ModelConfig shape = small_config().model;
  const auto store = store_of(random_placement(shape, 3, 4, 1), ExpertState::kSharded, 1);
  store->owned()[5].m.host<float>()[3] = 7;
  const std::byte* const address = store->owned()[5].m.data();
  const ComputePlacement next = random_placement(shape, 3, 4, 2);
  const auto again = make_expert_store(
      cpu_device(), shape, next, make_ownership(ExpertState::kSharded, next), 1, store->release());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)->owned()[5].m.data(), address);
  EXPECT_EQ((*again)->owned()[5].m.host<float>()[3], 7);
}

// A weight that is not finite, of one owner alone, makes every rank skip the step.
TEST(Sharded, EveryRankSkipsNonFiniteStep) {
  const TrainConfig config = small_config();
  const std::vector<uint8_t> text = sample_text(4000);
  run_ranks(3, [&](Comm& comm) {
    const ComputePlacement placement = random_placement(config.model, 3, 3, 5);
    auto model = Model::create(cpu_device(), config.model,
                               store_of(placement, ExpertState::kSharded, comm.rank()));
    ASSERT_TRUE(model.ok());
    (*model)->initialise(config.seed);
    if (comm.rank() == 1) {
      for (OwnedRange& range : (*model)->experts().owned()) {
        range.value.host<float>()[0] = std::numeric_limits<float>::infinity();
      }
    }
    const std::vector<float> before = *(*model)->experts().owned()[0].value.read<float>();
    Trainer trainer(config, text);
    Progress progress;
    const auto done = trainer.step(comm, **model, progress);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_FALSE(done->applied);
    EXPECT_EQ(*(*model)->experts().owned()[0].value.read<float>(), before);
  });
}

// An evaluation restores once for each layer and leaves gradients as they are.
TEST(Sharded, EvaluationRestoresOnce) {
  const TrainConfig config = small_config();
  const std::vector<uint8_t> text = sample_text(4000);
  const ComputePlacement placement = random_placement(config.model, 2, 4, 3);
  run_ranks(2, [&](Comm& comm) {
    auto model = Model::create(cpu_device(), config.model,
                               store_of(placement, ExpertState::kSharded, comm.rank()));
    ASSERT_TRUE(model.ok());
    (*model)->initialise(config.seed);
    Trainer trainer(config, text);
    Progress progress;
    ASSERT_TRUE(trainer.step(comm, **model, progress).ok());
    const ExpertTraffic step = (*model)->experts().traffic();
    (*model)->begin_step();
    ASSERT_TRUE(evaluate_text(comm, **model, text, 2).ok());
    const ExpertTraffic evaluation = (*model)->experts().traffic();
    EXPECT_EQ(evaluation.gradients, 0u);
    EXPECT_EQ(evaluation.weights * 2 * config.micro_batches, step.weights);
    for (const OwnedRange& range : (*model)->experts().owned()) {
      for (const double sum : range.grad_sum.host<double>()) ASSERT_EQ(sum, 0);
    }
  });
}

TEST(ShardLayout, OutgoingMatchesIncomingOfPeers) {
  const ModelConfig shape = odd_config().model;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto ranks = static_cast<uint32_t>(1 + seed % 8);
    const ComputePlacement placement = random_placement(shape, ranks, 6, seed);
    std::vector<ShardLayout> of_ranks;
    of_ranks.reserve(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) of_ranks.emplace_back(placement, 0, rank, 211);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(of_ranks[rank].outgoing()[rank], 0);
      EXPECT_EQ(of_ranks[rank].incoming_elements(),
                of_ranks[rank].computed_by(rank).size() * (211 - of_ranks[rank].part(rank).size()));
      for (uint32_t peer = 0; peer < ranks; ++peer) {
        EXPECT_EQ(of_ranks[rank].outgoing()[peer], of_ranks[peer].incoming()[rank]);
      }
    }
  }
}

}  // namespace
}  // namespace moetrain
