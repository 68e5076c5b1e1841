// ShardLayout: which parts of which experts ranks exchange for one layer of sharded experts. Pure.
//
// A restore brings the weights of the experts that a rank computes from the owners of their parts:
// a rank sends its own part of expert e to every other rank that computes e. A re-shard brings
// gradients back along the same pairs, the other way. Within what goes from one rank to another
// experts ascend; between ranks, ranks ascend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/placement/ownership.h"

namespace moetrain {

class ShardLayout {
 public:
  // One layer of the placement, seen by `rank`; `elements` of each expert. The placement is valid.
  ShardLayout(const ComputePlacement& placement, uint32_t layer, uint32_t rank, uint64_t elements);

  uint64_t elements() const { return elements_; }  // of each expert
  uint32_t ranks() const { return static_cast<uint32_t>(computed_.size()); }
  // The experts that a rank computes, ascending, each once.
  std::span<const uint32_t> computed_by(uint32_t rank) const { return computed_[rank]; }
  // The part of every expert that a rank owns.
  ElementRange part(uint32_t rank) const { return part_of(elements_, rank, ranks()); }

  // Elements between this rank and each other one, zero for itself. A restore sends `outgoing` (own
  // parts of the experts that the other computes) and receives `incoming` (the other's parts of the
  // experts computed here). A re-shard sends `incoming` and receives `outgoing`.
  std::span<const int64_t> outgoing() const { return outgoing_; }
  std::span<const int64_t> incoming() const { return incoming_; }
  size_t outgoing_elements() const { return outgoing_elements_; }
  size_t incoming_elements() const { return incoming_elements_; }

 private:
  uint64_t elements_;
  std::vector<std::vector<uint32_t>> computed_;
  std::vector<int64_t> outgoing_;
  std::vector<int64_t> incoming_;
  size_t outgoing_elements_ = 0;
  size_t incoming_elements_ = 0;
};

}  // namespace moetrain
