// Memory of units: what a snapshot reads and a restore writes.
#include "trainer/checkpoint/state_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "trainer/checkpoint/plan.h"

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
  RankState(const std::vector<StateUnit>& all_units, const ExpertPlacement& placement, uint32_t r,
            uint64_t seed)
      : units(all_units), rank(r) {
    auto store = make_replicated_store(*device, shape(), placement, rank);
    model = std::move(Model::create(*device, shape(), std::move(store).value())).value();
    model->initialise(seed);
    for (Parameter* parameter : model->parameters()) {
      // Moments that tell tensors and positions apart, the same on every rank.
      const std::span<const float> value = parameter->value.host<float>();
      for (size_t i = 0; i < value.size(); ++i) {
        parameter->m.host<float>()[i] = 2 * value[i] + static_cast<float>(i);
        parameter->v.host<float>()[i] = 3 * value[i] + static_cast<float>(seed);
      }
    }
    trainer_unit.assign(units[kTrainerUnit].bytes, std::byte{static_cast<uint8_t>(seed)});
    memory.emplace(units, *model, trainer_unit, stamps);
  }
  const std::vector<StateUnit>& units;
  uint32_t rank;
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
Image save(const std::vector<StateUnit>& units, const ExpertPlacement& placement, uint64_t seed) {
  const uint32_t ranks = placement.ranks;
  Image image;
  for (uint32_t id = 0; id < units.size(); ++id) image[id].resize(units[id].bytes);
  std::vector<std::unique_ptr<RankState>> states;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    states.push_back(std::make_unique<RankState>(units, placement, rank, seed));
  }
  for (const ckpt_fragment& fragment :
       snapshot_plan(units, all_units(units), placement, DenseSharding::kBytes)) {
    read_fragment(*states[fragment.rank], fragment, image);
  }
  return image;
}

Image save(const std::vector<StateUnit>& units, uint32_t ranks, uint64_t seed) {
  return save(units, *static_placement(shape().layers, shape().experts, ranks), seed);
}

// Three ranks, replicas in different sets, one expert twice on a rank.
ExpertPlacement replicated() {
  return *make_placement({{{0, 1, 2, 3}, {4, 3, 2}, {0, 2, 2}}, {{4, 3}, {0, 1, 2}, {2, 4, 3}}},
                         shape().experts, 3);
}

TEST(StateMemoryTest, WhatIsSavedDoesNotDependOnTheNumberOfRanks) {
  const auto units = state_units(shape());
  const Image one = save(units, 1, 7);
  EXPECT_EQ(save(units, 3, 7), one);
  EXPECT_EQ(save(units, 5, 7), one);
  EXPECT_EQ(save(units, replicated(), 7), one) << "replicas bring their parts";
  EXPECT_NE(save(units, 3, 8), one);
}

TEST(StateMemoryTest, AnyLayoutIsRestoredByAnyOther) {
  const auto units = state_units(shape());
  const Image saved = save(units, 4, 7);
  for (const ExpertPlacement& placement :
       {*static_placement(shape().layers, shape().experts, 3), replicated()}) {
    for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
      RankState fresh(units, placement, rank, 99);
      const RankState expected(units, placement, rank, 7);
      for (const uint32_t id : units_of_rank(units, placement, rank)) {
        for (const MemoryPiece& piece : fresh.memory->pieces(id, 0, units[id].bytes)) {
          std::memcpy(piece.bytes.data(), saved.at(id).data() + piece.offset, piece.bytes.size());
        }
      }
      const auto got = fresh.model->parameters();
      const auto want = expected.model->parameters();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        for (const Tensor Parameter::*const buffer :
             {&Parameter::value, &Parameter::m, &Parameter::v}) {
          EXPECT_EQ(*(got[i]->*buffer).read<float>(), *(want[i]->*buffer).read<float>())
              << want[i]->spec.name;
        }
      }
    }
  }
}

// Who overwrites a parameter waits for these units: each must be there, and no other.
TEST(StateMemoryTest, UnitsOfAParameterAreThoseThatHoldAByteOfIt) {
  const auto units = state_units(shape());
  const auto placement = *static_placement(shape().layers, shape().experts, 2);
  RankState state(units, placement, 1, 7);
  const auto overlap = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
  };
  const auto own = units_of_rank(units, placement, 1);
  for (const Parameter* parameter : state.model->parameters()) {
    std::vector<uint32_t> expected;
    for (const uint32_t id : own) {
      bool holds = false;
      for (const MemoryPiece& piece : state.memory->pieces(id, 0, units[id].bytes)) {
        for (const Tensor* tensor : {&parameter->value, &parameter->m, &parameter->v}) {
          holds = holds || overlap(piece.bytes, {tensor->data(), tensor->bytes()});
        }
      }
      if (holds) expected.push_back(id);
    }
    const auto found = state.memory->units_of(*parameter);
    EXPECT_EQ(std::vector<uint32_t>(found.begin(), found.end()), expected) << parameter->spec.name;
    EXPECT_EQ(expected.size(), parameter->spec.expert ? 2u : 1u) << parameter->spec.name;
  }
  EXPECT_TRUE(state.memory->units_of(Parameter()).empty());
}

}  // namespace
}  // namespace moetrain
