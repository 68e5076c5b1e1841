// Memory of units: what a snapshot reads and a restore writes.
#include "trainer/checkpoint/state_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/unit_ranges.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {
namespace {

ModelConfig shape() {
  ModelConfig config;
  config.hidden = 16;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 8;
  config.intermediate = 24;
  config.experts = 5;
  return config;
}

// One rank's model with every buffer filled.
struct RankState {
  RankState(const std::vector<StateUnit>& all_units, const ComputePlacement& placement, uint32_t r,
            uint64_t seed, ExpertState state = ExpertState::kReplicated)
      : units(all_units), rank(r), ownership(make_ownership(state, placement)) {
    auto store = make_expert_store(*device, shape(), placement, ownership, rank);
    model = std::move(Model::create(*device, shape(), std::move(store).value())).value();
    model->initialise(seed);
    for (const ParameterPart& part : model->parts()) {
      // Moments that tell tensors and positions apart, the same on every rank.
      std::vector<float> m = *part.read(&WeightState::value);
      std::vector<float> v = m;
      for (size_t i = 0; i < m.size(); ++i) {
        m[i] = 2 * m[i] + static_cast<float>(part.elements.begin + i);
        v[i] = 3 * v[i] + static_cast<float>(seed);
      }
      part.write(&WeightState::m, m);
      part.write(&WeightState::v, v);
    }
    trainer_unit.assign(units[kTrainerUnit].bytes, std::byte{static_cast<uint8_t>(seed)});
    memory.emplace(units, *model, trainer_unit, stamps);
  }
  const std::vector<StateUnit>& units;
  uint32_t rank;
  Ownership ownership;
  std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<Model> model;
  std::vector<std::byte> trainer_unit;
  ExpertStamps stamps{{shape().layers, shape().experts}};
  std::optional<StateMemory> memory;
};

using Image = std::map<uint32_t, std::vector<std::byte>>;  // unit -> its bytes

void read_fragment(const RankState& state, const ckpt_fragment& fragment, Image& image) {
  uint64_t next = fragment.offset;
  for (const MemoryPiece& piece :
       state.memory->pieces(fragment.unit, fragment.offset, fragment.length)) {
    EXPECT_EQ(piece.offset, next);
    next += piece.bytes.size();
    std::copy(piece.bytes.begin(), piece.bytes.end(), image[fragment.unit].begin() + piece.offset);
  }
  EXPECT_EQ(next, fragment.offset + fragment.length);
}

// All ranks' shares, as a commit would hold them.
Image save(const std::vector<StateUnit>& units, const ComputePlacement& placement, uint64_t seed,
           ExpertState state = ExpertState::kReplicated) {
  const uint32_t ranks = placement.ranks;
  Image image;
  for (uint32_t id = 0; id < units.size(); ++id) image[id].resize(units[id].bytes);
  std::vector<std::unique_ptr<RankState>> states;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    states.push_back(std::make_unique<RankState>(units, placement, rank, seed, state));
  }
  for (const ckpt_fragment& fragment : snapshot_plan(
           units, all_units(units), make_ownership(state, placement), DenseSharding::kBytes)) {
    read_fragment(*states[fragment.rank], fragment, image);
  }
  return image;
}

Image save(const std::vector<StateUnit>& units, uint32_t ranks, uint64_t seed) {
  return save(units, *static_placement(shape().layers, shape().experts, ranks), seed);
}

// Three ranks, replicas in different sets, one expert twice on a rank.
ComputePlacement replicated() {
  return *make_placement({{{0, 1, 2, 3}, {4, 3, 2}, {0, 2, 2}}, {{4, 3}, {0, 1, 2}, {2, 4, 3}}},
                         shape().experts, 3);
}

TEST(StateMemoryTest, SavedBytesDoNotDependOnRankCount) {
  const auto units = state_units(shape());
  const Image one = save(units, 1, 7);
  EXPECT_EQ(save(units, 3, 7), one);
  EXPECT_EQ(save(units, 5, 7), one);
  EXPECT_EQ(save(units, replicated(), 7), one) << "replicas bring their parts";
  EXPECT_NE(save(units, 3, 8), one);
}

struct Layout {
  ComputePlacement placement;
  ExpertState state = ExpertState::kReplicated;
};

std::vector<Layout> layouts() {
  const auto even = [](uint32_t ranks) {
    return *static_placement(shape().layers, shape().experts, ranks);
  };
  return {{even(3)},
          {replicated()},
          {even(1), ExpertState::kSharded},
          {replicated(), ExpertState::kSharded},
          {even(5), ExpertState::kSharded}};
}

TEST(StateMemoryTest, AnyLayoutSavesTheSameBytes) {
  const auto units = state_units(shape());
  const Image one = save(units, 1, 7);
  for (const Layout& layout : layouts()) {
    EXPECT_EQ(save(units, layout.placement, 7, layout.state), one);
  }
}

TEST(StateMemoryTest, EveryLayoutRestoresSameSnapshot) {
  const auto units = state_units(shape());
  const Image saved = save(units, 4, 7);
  for (const Layout& layout : layouts()) {
    for (uint32_t rank = 0; rank < layout.placement.ranks; ++rank) {
      RankState fresh(units, layout.placement, rank, 99, layout.state);
      const RankState expected(units, layout.placement, rank, 7, layout.state);
      for (const uint32_t id : units_of_rank(units, fresh.ownership, rank)) {
        for (const MemoryPiece& piece : fresh.memory->held(id)) {
          std::memcpy(piece.bytes.data(), saved.at(id).data() + piece.offset, piece.bytes.size());
        }
      }
      const auto got = fresh.model->parts();
      const auto want = expected.model->parts();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        for (Tensor WeightState::*const buffer :
             {&WeightState::value, &WeightState::m, &WeightState::v}) {
          EXPECT_EQ(*got[i].read(buffer), *want[i].read(buffer)) << want[i].spec.name;
        }
      }
    }
  }
}

TEST(StateMemoryTest, ARankHoldsTheRangesThatItOwns) {
  const auto units = state_units(shape());
  for (const Layout& layout : layouts()) {
    for (uint32_t rank = 0; rank < layout.placement.ranks; ++rank) {
      const RankState state(units, layout.placement, rank, 7, layout.state);
      for (uint32_t id = 0; id < units.size(); ++id) {
        std::vector<UnitRange> held;
        for (const MemoryPiece& piece : state.memory->held(id)) {
          if (!held.empty() && held.back().offset + held.back().length == piece.offset) {
            held.back().length += piece.bytes.size();
          } else {
            held.push_back({piece.offset, piece.bytes.size()});
          }
        }
        EXPECT_EQ(held, held_ranges(units[id], state.ownership, rank)) << units[id].name;
      }
    }
  }
}

// The optimizer waits for these units before it overwrites state: each must be there, and no other.
TEST(StateMemoryTest, FindsExactlyUnitsThatHoldState) {
  const auto units = state_units(shape());
  const auto placement = *static_placement(shape().layers, shape().experts, 2);
  RankState state(units, placement, 1, 7);
  const auto overlap = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
  };
  const auto own = units_of_rank(units, Ownership::replicated(placement), 1);
  for (const ParameterPart& part : state.model->parts()) {
    std::vector<uint32_t> expected;
    for (const uint32_t id : own) {
      bool holds = false;
      for (const MemoryPiece& piece : state.memory->pieces(id, 0, units[id].bytes)) {
        for (Tensor* tensor : {&part.state->value, &part.state->m, &part.state->v}) {
          holds = holds || overlap(piece.bytes, part.bytes_in(*tensor));
        }
      }
      if (holds) expected.push_back(id);
    }
    const auto found = state.memory->units_of(*part.state);
    EXPECT_EQ(std::vector<uint32_t>(found.begin(), found.end()), expected) << part.spec.name;
    EXPECT_EQ(expected.size(), part.spec.expert ? 2u : 1u) << part.spec.name;
  }
  EXPECT_TRUE(state.memory->units_of(Parameter()).empty());
}

}  // namespace
}  // namespace moetrain
