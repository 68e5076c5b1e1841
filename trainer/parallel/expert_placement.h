// ExpertPlacement: which rank's slots hold which experts, per layer. A value; policies make it.
//
// An expert has one slot or several: its replicas. Two of them may be on one rank, where they are
// one state with twice the share of the tokens. Who owns an expert, where only one rank shall act
// for it, is the lowest of its live holders.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "formats/base/result.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

struct ExpertPlacement {
  uint32_t ranks = 0;
  uint32_t experts = 0;  // per layer
  // slots[layer][rank]: the experts on that rank, in slot order.
  std::vector<LayerSlots> slots;

  uint32_t layers() const { return static_cast<uint32_t>(slots.size()); }
  bool operator==(const ExpertPlacement&) const = default;
};

// One slot of one layer.
struct SlotAddress {
  uint32_t rank = 0;
  uint32_t slot = 0;  // position in slots[layer][rank]
  bool operator==(const SlotAddress&) const = default;
};

// Static expert parallelism: rank r holds experts [r*E/N, (r+1)*E/N) of every layer, so blocks
// differ by at most one expert. More ranks than experts is an error: a rank would hold none.
Result<ExpertPlacement> static_placement(uint32_t layers, uint32_t experts, uint32_t ranks);

// A policy's layers as a placement of `ranks` ranks. Errors: those of validate().
Result<ExpertPlacement> make_placement(std::vector<LayerSlots> slots, uint32_t experts,
                                       uint32_t ranks);

// Checks that every layer has slots for every rank, that these hold experts of the layer, and that
// every expert has at least one. kInvalidArgument names layer and expert. A rank may hold none.
Status validate(const ExpertPlacement& placement);

// For a valid placement:

// [expert]: its slots, ascending by rank, then slot.
std::vector<std::vector<SlotAddress>> slots_of_experts(const ExpertPlacement& placement,
                                                       uint32_t layer);
// [expert]: the ranks that hold it, ascending, each once.
std::vector<std::vector<uint32_t>> holders_of_experts(const ExpertPlacement& placement,
                                                      uint32_t layer);
// The experts of a rank, ascending, each once however many slots it has there.
std::vector<uint32_t> experts_of_rank(const ExpertPlacement& placement, uint32_t layer,
                                      uint32_t rank);
// The lowest holder that `live` says yes to; none if there is none. [expert] -> rank for a layer.
std::vector<std::optional<uint32_t>> owners_of_experts(
    const ExpertPlacement& placement, uint32_t layer,
    const std::function<bool(uint32_t rank)>& live);
// Where all ranks live.
std::vector<uint32_t> owners_of_experts(const ExpertPlacement& placement, uint32_t layer);

// Whether some expert is on more than one rank.
bool has_replicas(const ExpertPlacement& placement);

}  // namespace moetrain
