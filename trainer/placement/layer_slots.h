// LayerSlots: which rank's slots hold which experts, for one layer. A value; policies make it.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

// [rank]: the experts in its slots, in slot order. What ComputePlacement::slots holds for each
// layer. An expert in several slots has replicas; two on one rank share its load and are lost
// together.
using LayerSlots = std::vector<std::vector<uint32_t>>;

// kInvalidArgument, naming the expert, unless every slot holds one of `experts` experts and every
// expert has a slot.
Status check_covers(const LayerSlots& slots, uint32_t experts);

// For every expert the ranks that hold it, ascending, each once. The slots name only experts below
// `experts`.
std::vector<std::vector<uint32_t>> holders(const LayerSlots& slots, uint32_t experts);

}  // namespace moetrain
