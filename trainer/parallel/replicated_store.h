// The store of replicated experts: every rank that computes an expert owns all of its weights,
// gradient and moments. acquire() hands out pointers and moves nothing. Replicas stay equal because
// they get the same gradient (replica_gradients.h) and update alike.
#pragma once

#include "trainer/model/expert_store.h"

namespace moetrain {

// Arguments have been checked by make_expert_store(), which says what `released` does.
std::unique_ptr<ExpertStore> make_replicated_store(Device& device, const ModelConfig& config,
                                                   const ComputePlacement& placement, uint32_t rank,
                                                   std::vector<OwnedRange> released);

}  // namespace moetrain
