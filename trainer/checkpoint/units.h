// Units of a model's state, their order, and the place of each tensor in its unit.
//
//   trainer                         all state that is not a tensor (trainer_state.h)
//   embed                           embedding
//   layers.L.attention              input norm, q, k, v, o
//   layers.L.router                 norm before the experts, router
//   head                            last norm, language-model head
//   layers.L.experts.E.weights      w1, w2, w3
//   layers.L.experts.E.optimizer    their moments
//
// Dense units hold weights and moments. Weights have their Hugging Face names, so that an export is
// a selection of tensors; moments are `optimizer.m.NAME` and `optimizer.v.NAME`. The list depends
// on the model's shape only, never on ranks or placement. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/model/parameter.h"

namespace moetrain {

enum class StateBuffer : uint8_t { kValue, kFirstMoment, kSecondMoment };

// One buffer of one parameter, at `offset` in its unit. Tensors follow each other without gaps.
struct UnitTensor {
  std::string parameter;  // its name in the model
  StateBuffer buffer = StateBuffer::kValue;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // fp32
  // Name of the tensor in the checkpoint.
  std::string name() const;
};

struct StateUnit {
  std::string name;
  std::optional<uint32_t> layer;
  std::optional<uint32_t> expert;
  std::string part;  // "", "weights" or "optimizer"
  uint64_t bytes = 0;
  std::vector<UnitTensor> tensors;  // none in the trainer unit
};

inline constexpr uint32_t kTrainerUnit = 0;  // its position in the list

// Ids of units are positions in this list.
std::vector<StateUnit> state_units(const ModelConfig& config);

// Bytes of the trainer unit for a model of this shape: room for the state with every expert on up
// to four ranks, a multiple of 4 KiB.
uint64_t trainer_unit_bytes(uint32_t layers, uint32_t experts);

// Bytes of all units together.
uint64_t total_bytes(const std::vector<StateUnit>& units);

}  // namespace moetrain
