// StateMemory: where the bytes of every unit lie in this rank's memory.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/expert_stamps.h"
#include "trainer/checkpoint/units.h"
#include "trainer/model/model.h"

namespace moetrain {

// Consecutive bytes of a unit that are also consecutive in memory.
struct MemoryPiece {
  uint64_t offset = 0;  // in the unit
  std::span<std::byte> bytes;
  bool on_host = false;  // in host memory, even if the model is on a GPU
};

// Borrows the model's parameters, the buffer of the trainer unit, and the stamps of experts, which
// a restore fills in (expert_stamps.h); all must outlive it and keep their addresses.
class StateMemory {
 public:
  StateMemory(const std::vector<StateUnit>& units, Model& model, std::span<std::byte> trainer_unit,
              ExpertStamps& stamps);

  // [offset, offset + length) of the unit, in ascending pieces. Precondition: this rank holds these
  // bytes; they are in the trainer unit, a dense unit, or its owned part of an expert.
  std::vector<MemoryPiece> pieces(uint32_t unit, uint64_t offset, uint64_t length) const;
  // All bytes of the unit that this rank holds, in ascending pieces: held_ranges() of
  // unit_ranges.h.
  std::vector<MemoryPiece> held(uint32_t unit) const;

  // The units with the value and moments of `state`, ascending; none if it is not of this model.
  std::span<const uint32_t> units_of(const WeightState& state) const;
  std::span<const std::byte> trainer_unit() const { return trainer_unit_; }
  ExpertStamps& stamps() const { return stamps_; }

 private:
  std::vector<MemoryPiece> held_within(uint32_t unit, uint64_t offset, uint64_t length) const;

  const std::vector<StateUnit>& units_;
  std::map<std::string, ParameterPart, std::less<>> parts_;  // by the parameter's name
  std::map<const WeightState*, std::vector<uint32_t>> units_of_;
  std::span<std::byte> trainer_unit_;
  ExpertStamps& stamps_;
};

}  // namespace moetrain
