// LayerRoutes: where the tokens of one layer go when experts have replicas. Pure.
//
// A rank computes an expert once, however many slots it has of it: a pair of rank and expert is a
// `group`, and a group's rows are those of all its slots. Groups are numbered by rank, then by
// expert, ascending.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/placement/layer_slots.h"

namespace moetrain {

class LayerRoutes {
 public:
  // Every expert below `experts` has a slot. node_of_rank: for lite routing, where replicas on the
  // node of a token's rank share it. Empty: all replicas share all tokens, as on one node.
  LayerRoutes(const LayerSlots& slots, uint32_t experts, std::vector<uint32_t> node_of_rank = {});

  uint32_t ranks() const { return static_cast<uint32_t>(first_group_.size() - 1); }
  uint32_t experts() const { return static_cast<uint32_t>(groups_of_.size()); }
  size_t groups() const { return first_group_.back(); }
  // The groups of a rank: [first_group(rank), first_group(rank + 1)).
  size_t first_group(uint32_t rank) const { return first_group_[rank]; }
  // The groups of an expert, ascending: one for each holder.
  std::span<const size_t> groups_of(uint32_t expert) const { return groups_of_[expert]; }

  // tokens: [rank][expert], what each rank has for each expert. Returns [rank][group]: the rows
  // that a rank sends to a group (trainer/placement/token_shares.h).
  std::vector<int64_t> share(std::span<const int64_t> tokens) const;

 private:
  std::vector<size_t> first_group_;                // [ranks + 1]
  std::vector<std::vector<size_t>> groups_of_;     // [expert]
  std::vector<std::vector<uint32_t>> slot_ranks_;  // [expert]: the rank of every slot, ascending
  std::vector<uint32_t> node_of_rank_;             // empty: one node
};

}  // namespace moetrain
