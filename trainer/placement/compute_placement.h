// ComputePlacement: which rank computes which experts in a step, per layer. A value; policies make
// it. Dispatch sends tokens by it. Ownership says which rank holds an expert's state
// (ownership.h); with replicated state every rank also holds the experts that it computes.
//
// An expert has one slot or several: its replicas. Two slots of one expert may be on one rank: they
// share one set of weights there and get twice the share of the tokens. Where nodes are known,
// replicas on a token's node share it (lite routing, token_shares.h).
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/result.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

struct ComputePlacement {
  uint32_t ranks = 0;
  uint32_t experts = 0;  // per layer
  // slots[layer][rank]: the experts that the rank computes, in slot order.
  std::vector<LayerSlots> slots;
  // [rank]: its node, any number, for lite routing. Empty: one node, all replicas share all tokens.
  std::vector<uint32_t> node_of_rank = {};

  uint32_t layers() const { return static_cast<uint32_t>(slots.size()); }
  bool operator==(const ComputePlacement&) const = default;
};

// One slot of one layer.
struct SlotAddress {
  uint32_t rank = 0;
  uint32_t slot = 0;  // position in slots[layer][rank]
  bool operator==(const SlotAddress&) const = default;
};

// Static expert parallelism: rank r holds experts [r*E/N, (r+1)*E/N) of every layer, so blocks
// differ by at most one expert. More ranks than experts is an error: a rank would hold none.
Result<ComputePlacement> static_placement(uint32_t layers, uint32_t experts, uint32_t ranks);

// A policy's layers as a placement of `ranks` ranks. Errors: those of validate().
Result<ComputePlacement> make_placement(std::vector<LayerSlots> slots, uint32_t experts,
                                        uint32_t ranks, std::vector<uint32_t> node_of_rank = {});

// Checks that every layer has slots for every rank, that these hold experts of the layer, that
// every expert has at least one, and that every rank has a node if any has. kInvalidArgument names
// layer and expert. A rank may hold none.
Status validate(const ComputePlacement& placement);

// For a valid placement:

// [expert]: its slots, ascending by rank, then slot.
std::vector<std::vector<SlotAddress>> slots_of_experts(const ComputePlacement& placement,
                                                       uint32_t layer);
// [expert]: the ranks that compute it, ascending, each once.
std::vector<std::vector<uint32_t>> holders_of_experts(const ComputePlacement& placement,
                                                      uint32_t layer);
// The experts of a rank, ascending, each once however many slots it has there.
std::vector<uint32_t> experts_of_rank(const ComputePlacement& placement, uint32_t layer,
                                      uint32_t rank);
// Whether some expert is on more than one rank.
bool has_replicas(const ComputePlacement& placement);

}  // namespace moetrain
