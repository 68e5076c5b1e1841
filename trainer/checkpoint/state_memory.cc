#include "trainer/checkpoint/state_memory.h"

#include <algorithm>

#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace moetrain {

namespace {

std::span<std::byte> bytes_of(Tensor& tensor) { return {tensor.data(), tensor.bytes()}; }

std::span<std::byte> buffer_of(Parameter& parameter, StateBuffer buffer) {
  switch (buffer) {
    case StateBuffer::kValue:
      return bytes_of(parameter.value);
    case StateBuffer::kFirstMoment:
      return bytes_of(parameter.m);
    case StateBuffer::kSecondMoment:
      return bytes_of(parameter.v);
  }
  CKPT_ASSERT(false);
}

}  // namespace

StateMemory::StateMemory(const std::vector<StateUnit>& units, Model& model,
                         std::span<std::byte> trainer_unit, ExpertStamps& stamps)
    : units_(units), trainer_unit_(trainer_unit), stamps_(stamps) {
  for (Parameter* parameter : model.parameters()) parameters_[parameter->spec.name] = parameter;
  for (uint32_t id = 0; id < units.size(); ++id) {
    for (const UnitTensor& tensor : units[id].tensors) {
      const auto parameter = parameters_.find(tensor.parameter);
      if (parameter == parameters_.end()) continue;  // a stamp, or an expert of another rank
      std::vector<uint32_t>& in = units_of_[parameter->second];
      if (in.empty() || in.back() != id) in.push_back(id);
    }
  }
}

std::span<const uint32_t> StateMemory::units_of(const Parameter& parameter) const {
  const auto found = units_of_.find(&parameter);
  return found == units_of_.end() ? std::span<const uint32_t>() : found->second;
}

std::span<std::byte> StateMemory::memory_of(const UnitTensor& tensor) const {
  const auto parameter = parameters_.find(tensor.parameter);
  CKPT_ASSERT_MSG(parameter != parameters_.end(), tensor.parameter);
  return buffer_of(*parameter->second, tensor.buffer);
}

std::vector<MemoryPiece> StateMemory::pieces(uint32_t unit, uint64_t offset,
                                             uint64_t length) const {
  const StateUnit& state = units_.at(unit);
  CKPT_ASSERT_MSG(ckpt::base::range_fits(offset, length, state.bytes), state.name);
  if (unit == kTrainerUnit) return {{offset, trainer_unit_.subspan(offset, length), true}};
  std::vector<MemoryPiece> pieces;
  for (const UnitTensor& tensor : state.tensors) {
    const uint64_t begin = std::max(offset, tensor.offset);
    const uint64_t end = std::min(offset + length, tensor.offset + tensor.bytes);
    if (begin >= end) continue;
    const std::span<std::byte> memory = memory_of(tensor);
    CKPT_ASSERT_MSG(memory.size() == tensor.bytes, tensor.parameter);
    pieces.push_back({begin, memory.subspan(begin - tensor.offset, end - begin), false});
  }
  return pieces;
}

}  // namespace moetrain
