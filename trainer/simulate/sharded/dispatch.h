// Dispatch: which rank computes which tokens of a micro-batch, and the traffic of each link.
//
// Replicas share an expert's tokens evenly: those of a node its node's tokens, or all of them all.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/placement/layer_slots.h"
#include "trainer/simulate/sharded/routing.h"

namespace moetrain::simulate::sharded {

struct Dispatch {
  std::vector<double> computed;  // [rank]: tokens
  double within = 0;             // tokens of the rank that sends or receives most within its node
  double between = 0;            // tokens of the node that sends to or receives from others most

  double busiest() const;
  double mean() const;
};

enum class Sharing {
  // Lite routing (LAER-MoE): replicas on the node of a token's rank; where there are none, all.
  kNode,
  kAll,
};

// tokens[rank][expert]: of one layer. Every expert has a slot; ranks r / ranks_per_node share a
// node, and there are whole nodes.
Dispatch dispatch(const LayerSlots& slots, const TokenCounts& tokens, uint32_t ranks_per_node,
                  Sharing sharing = Sharing::kNode);

}  // namespace moetrain::simulate::sharded
