// ExpertPlacement: which rank's slots hold which experts, per layer. A value; policies make it.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

struct ExpertPlacement {
  uint32_t ranks = 0;
  uint32_t experts = 0;  // per layer
  // slots[layer][rank]: the experts on that rank, in slot order.
  std::vector<std::vector<std::vector<uint32_t>>> slots;

  uint32_t layers() const { return static_cast<uint32_t>(slots.size()); }
  bool operator==(const ExpertPlacement&) const = default;
};

// Where one expert of one layer lives.
struct SlotAddress {
  uint32_t rank = 0;
  uint32_t slot = 0;  // position in slots[layer][rank]
};

// Static expert parallelism: rank r holds experts [r*E/N, (r+1)*E/N) of every layer, so blocks
// differ by at most one expert. More ranks than experts is an error: a rank would hold none.
Result<ExpertPlacement> static_placement(uint32_t layers, uint32_t experts, uint32_t ranks);

// Checks sizes, and that every expert of every layer has exactly one slot; dispatch cannot share
// tokens between replicas yet. The error names layer and expert.
Status validate(const ExpertPlacement& placement);

// The slot of every expert of a layer. The placement is valid.
std::vector<SlotAddress> slot_addresses(const ExpertPlacement& placement, uint32_t layer);

}  // namespace moetrain
