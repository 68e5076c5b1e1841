// The factory of expert stores: the only place that knows which kinds there are.
#pragma once

#include "trainer/model/expert_store.h"

namespace moetrain {

// The store of `rank`, in memory of `device`, which outlives it. Buffers are zero, except what
// comes from `released`: state that another store of this model and device has released, in that
// store's order. A range that the rank still owns stays where it is, with all its values; a
// replicated store reuses the memory of the others. Pointers to a range change, addresses of its
// buffers do not.
//
// Errors: kInvalidArgument if the placement is invalid, placement and ownership are not of this
// model and of the same ranks, the rank is not one of them, replicated ownership gives an expert to
// other ranks than those that compute it, or there are more ranks than elements to shard.
Result<std::unique_ptr<ExpertStore>> make_expert_store(Device& device, const ModelConfig& config,
                                                       const ComputePlacement& placement,
                                                       const Ownership& ownership, uint32_t rank,
                                                       std::vector<OwnedRange> released = {});

}  // namespace moetrain
