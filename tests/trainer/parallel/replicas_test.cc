// Training with replicated experts: the numbers of static placement, and identical replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <mutex>
#include <set>

#include "tests/trainer/comm/comm_groups.h"
#include "tests/trainer/model/ranks.h"
#include "tests/trainer/training/training.h"
#include "trainer/loop.h"
#include "trainer/parallel/gradients.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/parallel/replica_check.h"
#include "trainer/parallel/replica_gradients.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

const uint32_t kLayers = small_config().model.layers;
const uint32_t kExperts = small_config().model.experts;

ComputePlacement placed(uint32_t ranks, std::vector<LayerSlots> slots) {
  Result<ComputePlacement> placement = make_placement(std::move(slots), kExperts, ranks);
  CKPT_ASSERT_MSG(placement.ok(), placement.error().message);
  return std::move(placement).value();
}

// Replicas in different sets; an expert twice on one rank; one on all ranks; a rank without any.
const ComputePlacement& three_ranks() {
  static const ComputePlacement placement =
      placed(3, {{{0, 1, 2}, {1, 2, 3}, {2, 0, 0}}, {{3, 1}, {0, 1, 2, 3}, {}}});
  return placement;
}
const ComputePlacement& two_ranks() {
  static const ComputePlacement placement =
      placed(2, {{{0, 1, 2, 3}, {3, 2, 1, 0}}, {{0, 1, 1}, {1, 2, 3, 2}}});
  return placement;
}

std::unique_ptr<Model> make_model(const TrainConfig& config, const ComputePlacement& placement,
                                  uint32_t rank) {
  auto store = make_expert_store(cpu_device(), config.model, placement,
                                 Ownership::replicated(placement), rank);
  CKPT_ASSERT_MSG(store.ok(), store.error().message);
  auto model = Model::create(cpu_device(), config.model, std::move(store).value());
  CKPT_ASSERT(model.ok());
  (*model)->initialise(config.seed);
  return std::move(model).value();
}

// Adds all state of a model that a checkpoint would hold.
void add_state(Model& model, State& state) {
  for (const ParameterPart& part : model.parts()) {
    for (const auto& [prefix, tensor] :
         {std::pair("", &WeightState::value), {"m.", &WeightState::m}, {"v.", &WeightState::v}}) {
      const std::vector<float> values = *part.read(tensor);
      const auto [at, fresh] = state.try_emplace(prefix + part.spec.name, values);
      EXPECT_EQ(at->second, values) << prefix << part.spec.name << " on two ranks";
    }
  }
}

struct Trained {
  std::vector<uint32_t> loss_bits;
  std::vector<double> norms;
  State state;
};

Trained train(const TrainConfig& config, const ComputePlacement& placement, uint64_t steps,
              CommKind kind = CommKind::kLocal) {
  const std::vector<uint8_t> data = sample_text(4000);
  auto comms = make_comms(kind, placement.ranks, 60'000);
  Trained trained;
  std::mutex mutex;
  on_all_ranks(comms, [&](Comm& comm) {
    auto model = make_model(config, placement, comm.rank());
    Trainer trainer(config, data);
    Progress progress;
    Trained mine;
    for (uint64_t step = 0; step < steps; ++step) {
      const auto result = trainer.step(comm, *model, progress);
      ASSERT_TRUE(result.ok()) << result.error().message;
      mine.loss_bits.push_back(std::bit_cast<uint32_t>(result->loss));
      mine.norms.push_back(result->gradient_norm);
    }
    const Status same = check_replicas(comm, *model);
    EXPECT_TRUE(same.ok()) << same.error().message;
    const std::lock_guard lock(mutex);
    if (trained.loss_bits.empty()) {
      trained.loss_bits = mine.loss_bits;
      trained.norms = mine.norms;
    }
    EXPECT_EQ(mine.loss_bits, trained.loss_bits) << "rank " << comm.rank();
    add_state(*model, trained.state);
  });
  return trained;
}

// Stronger than the 1e-5 promised for any machine: on the host every sum over tokens is in double,
// and a row's bits do not depend on its neighbours.
TEST(ReplicasTest, FiftyStepsHaveTheBitsOfStaticPlacement) {
  const TrainConfig config = small_config();
  const Trained expected = train(config, *static_placement(kLayers, kExperts, 1), 50);
  for (const ComputePlacement& placement : {two_ranks(), three_ranks()}) {
    const Trained got = train(config, placement, 50);
    for (size_t step = 0; step < 50; ++step) {
      const auto a = std::bit_cast<float>(got.loss_bits[step]);
      const auto b = std::bit_cast<float>(expected.loss_bits[step]);
      EXPECT_NEAR(a, b, 1e-5 * b) << "step " << step + 1;
    }
    EXPECT_EQ(got.loss_bits, expected.loss_bits) << placement.ranks << " ranks";
    EXPECT_EQ(got.state, expected.state) << placement.ranks << " ranks";
  }
}

TEST(ReplicasTest, ProcessesOverGlooComputeTheSame) {
  const Trained local = train(small_config(), three_ranks(), 4);
  const Trained gloo = train(small_config(), three_ranks(), 4, CommKind::kGloo);
  EXPECT_EQ(gloo.loss_bits, local.loss_bits);
  EXPECT_EQ(gloo.state, local.state);
}

// The norm counts an expert once: three replicas do not triple its gradient.
TEST(ReplicasTest, NormMatchesOneRank) {
  const Trained one = train(small_config(), *static_placement(kLayers, kExperts, 1), 3);
  const Trained more = train(small_config(), three_ranks(), 3);
  for (size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(more.norms[step], one.norms[step], 1e-9 * one.norms[step]);
  }
}

TEST(ReplicasTest, GradientsMatchOneRank) {
  const TrainConfig config = small_config();
  const std::vector<uint8_t> data = sample_text(4000);
  State expected;
  for (const ComputePlacement& placement :
       {*static_placement(kLayers, kExperts, 1), three_ranks(), two_ranks()}) {
    auto comms = make_comms(CommKind::kLocal, placement.ranks, 60'000);
    on_all_ranks(comms, [&](Comm& comm) {
      static std::mutex mutex;
      auto model = make_model(config, placement, comm.rank());
      Trainer trainer(config, data);
      Progress progress;
      // Stops before the update, so that the gradients can be read.
      const auto stop = [](uint64_t, std::span<const int64_t>) {
        return ckpt::make_error(ckpt::ErrorCode::kIo, "enough");
      };
      EXPECT_FALSE(trainer.step(comm, *model, progress, stop).ok());
      const std::lock_guard lock(mutex);
      for (const ParameterPart& part : model->parts()) {
        const std::vector<float> grad = *part.read(&WeightState::grad);
        const auto [at, fresh] = expected.try_emplace(part.spec.name, grad);
        EXPECT_EQ(at->second, grad)
            << part.spec.name << ", rank " << comm.rank() << " of " << comm.size();
      }
    });
  }
}

TEST(ReplicasTest, AFlippedBitIsFoundAndNamed) {
  const TrainConfig config = small_config();
  for (Tensor WeightState::*const buffer :
       {&WeightState::value, &WeightState::m, &WeightState::v}) {
    auto comms = make_comms(CommKind::kLocal, 3, 60'000);
    on_all_ranks(comms, [&](Comm& comm) {
      auto model = make_model(config, three_ranks(), comm.rank());
      ASSERT_TRUE(check_replicas(comm, *model).ok());
      if (comm.rank() == 1) {
        for (OwnedRange& expert : model->experts().owned()) {
          if (expert.layer != 0 || expert.expert != 2) continue;
          (expert.*buffer).data()[17] ^= std::byte{4};
        }
      }
      const Status found = check_replicas(comm, *model);
      ASSERT_FALSE(found.ok()) << "rank " << comm.rank();
      EXPECT_EQ(found.error().code, ckpt::ErrorCode::kCorrupt);
      EXPECT_THAT(found.error().message, HasSubstr("layers.0.experts.2: its replicas differ"));
      EXPECT_THAT(found.error().message, HasSubstr("ranks 0, 2 have"));
      EXPECT_THAT(found.error().message, HasSubstr("rank 1 has"));
    });
  }
}

// The pieces that two ranks exchange match, cover every gradient once, and are in proportion to
// the replicated experts.
TEST(SharedPiecesTest, FitTogetherAndCoverEachGradientOnce) {
  const uint64_t elements = 1001;
  const ComputePlacement& placement = three_ranks();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    std::map<size_t, uint64_t> covered;  // by owned expert: elements in others' pieces
    std::map<size_t, uint64_t> own;
    for (uint32_t peer = 0; peer < 3; ++peer) {
      const auto theirs = shared_pieces(placement, rank, peer, peer, elements);
      const auto expected = shared_pieces(placement, peer, rank, peer, elements);
      ASSERT_EQ(theirs.size(), expected.size());
      for (size_t i = 0; i < theirs.size(); ++i) {
        EXPECT_EQ(theirs[i].begin, expected[i].begin);
        EXPECT_EQ(theirs[i].end, expected[i].end);
        covered[theirs[i].expert] += theirs[i].end - theirs[i].begin;
      }
      for (const GradientPiece& piece : shared_pieces(placement, rank, peer, rank, elements)) {
        own[piece.expert] = piece.end - piece.begin;  // the same piece goes to every peer
      }
    }
    for (const auto& [expert, size] : covered) EXPECT_EQ(size + own[expert], elements);
    size_t replicated = 0;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const auto holders = holders_of_experts(placement, layer);
      for (const uint32_t expert : experts_of_rank(placement, layer, rank)) {
        replicated += holders[expert].size() > 1 ? 1 : 0;
      }
    }
    EXPECT_EQ(covered.size(), replicated);
  }
}

TEST(ExpertStoreTest, NewStoreReusesReleasedExperts) {
  const TrainConfig config = small_config();
  auto model = make_model(config, three_ranks(), 0);
  std::map<std::pair<uint32_t, uint32_t>, std::pair<const std::byte*, std::vector<float>>> had;
  size_t count = 0;
  for (OwnedRange& expert : model->experts().owned()) {
    expert.m.host<float>()[3] = 7;
    had[{expert.layer, expert.expert}] = {expert.value.data(), *expert.value.read<float>()};
    ++count;
  }
  const ComputePlacement next = placed(2, {{{1, 3}, {0, 2}}, {{0, 2, 1}, {3}}});
  auto store = make_expert_store(cpu_device(), config.model, next, Ownership::replicated(next), 0,
                                 model->experts().release());
  ASSERT_TRUE(store.ok());
  ASSERT_EQ((*store)->owned().size(), 5u);
  std::set<const std::byte*> reused;
  for (OwnedRange& expert : (*store)->owned()) {
    EXPECT_EQ(parts_of(expert, config.model)[0].spec,
              expert_parameters(config.model, expert.layer, expert.expert)[0]);
    const auto was = had.find({expert.layer, expert.expert});
    if (was != had.end()) {
      EXPECT_EQ(expert.value.data(), was->second.first) << "not copied";
      EXPECT_EQ(*expert.value.read<float>(), was->second.second);
      EXPECT_EQ(expert.m.host<float>()[3], 7);
    } else {
      for (const float value : expert.value.host<float>()) EXPECT_EQ(value, 0);
      EXPECT_EQ(expert.m.host<float>()[3], 0);
    }
    for (const auto& [which, memory] : had) {
      if (memory.first == expert.value.data()) reused.insert(memory.first);
    }
  }
  EXPECT_EQ(reused.size(), count) << "memory of experts that left is used again";
}

}  // namespace
}  // namespace moetrain
