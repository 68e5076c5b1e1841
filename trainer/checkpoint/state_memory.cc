#include "trainer/checkpoint/state_memory.h"

#include <algorithm>

#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace moetrain {

namespace {

Tensor& buffer_of(WeightState& state, StateBuffer buffer) {
  switch (buffer) {
    case StateBuffer::kValue:
      return state.value;
    case StateBuffer::kFirstMoment:
      return state.m;
    case StateBuffer::kSecondMoment:
      return state.v;
  }
  CKPT_ASSERT(false);
}

}  // namespace

StateMemory::StateMemory(const std::vector<StateUnit>& units, Model& model,
                         std::span<std::byte> trainer_unit, ExpertStamps& stamps)
    : units_(units), trainer_unit_(trainer_unit), stamps_(stamps) {
  for (ParameterPart& part : model.parts()) {
    const std::string name = part.spec.name;
    parts_.emplace(name, std::move(part));
  }
  for (uint32_t id = 0; id < units.size(); ++id) {
    for (const UnitTensor& tensor : units[id].tensors) {
      const auto part = parts_.find(tensor.parameter);
      if (part == parts_.end()) continue;  // of an expert that this rank owns nothing of
      std::vector<uint32_t>& in = units_of_[part->second.state];
      if (in.empty() || in.back() != id) in.push_back(id);
    }
  }
}

std::span<const uint32_t> StateMemory::units_of(const WeightState& state) const {
  const auto found = units_of_.find(&state);
  return found == units_of_.end() ? std::span<const uint32_t>() : found->second;
}

std::vector<MemoryPiece> StateMemory::pieces(uint32_t unit, uint64_t offset,
                                             uint64_t length) const {
  std::vector<MemoryPiece> pieces = held_within(unit, offset, length);
  uint64_t found = 0;
  for (const MemoryPiece& piece : pieces) found += piece.bytes.size();
  CKPT_ASSERT_MSG(found == length, units_[unit].name);
  return pieces;
}

std::vector<MemoryPiece> StateMemory::held(uint32_t unit) const {
  return held_within(unit, 0, units_.at(unit).bytes);
}

std::vector<MemoryPiece> StateMemory::held_within(uint32_t unit, uint64_t offset,
                                                  uint64_t length) const {
  const StateUnit& state = units_.at(unit);
  CKPT_ASSERT_MSG(ckpt::base::range_fits(offset, length, state.bytes), state.name);
  if (unit == kTrainerUnit) return {{offset, trainer_unit_.subspan(offset, length), true}};
  std::vector<MemoryPiece> pieces;
  for (const UnitTensor& tensor : state.tensors) {
    const auto at = parts_.find(tensor.parameter);
    if (at == parts_.end()) continue;
    const ParameterPart& part = at->second;
    const uint64_t first = tensor.offset + part.elements.begin * sizeof(float);
    const uint64_t last = tensor.offset + part.elements.end * sizeof(float);
    const uint64_t begin = std::max(offset, first);
    const uint64_t end = std::min(offset + length, last);
    if (begin >= end) continue;
    const std::span<std::byte> memory = part.bytes_in(buffer_of(*part.state, tensor.buffer));
    pieces.push_back({begin, memory.subspan(begin - first, end - begin), false});
  }
  return pieces;
}

}  // namespace moetrain
