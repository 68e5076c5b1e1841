// The store of fully sharded experts, as LAER-MoE has them (FSEP, arXiv 2602.11686): rank n of N
// owns elements [n*S/N, (n+1)*S/N) of every expert, with gradient and moments, and any rank can
// compute any expert. Nothing else holds optimizer state, so a new placement moves none.
//
//   acquire          restores the distinct experts that this rank computes in a layer: every rank
//                    sends its part of their weights. Forward and backward restore, each once.
//   give_gradients   re-sharding: the owners get their parts of the gradients back and add them in
//                    the order (micro-batch, rank), in double on a host.
//   reduce_gradients waits until all have, and rounds the owner's sums, once a step.
//
// ExpertSchedule says which restores and re-shards run beside the rank's thread
// (expert_pipeline.h).
//
// Bytes received per rank, layer and micro-batch: two restores of D * (S - own) * 4 (2 with bf16),
// one re-shard of own * 8 (4 on a GPU) for each replica elsewhere of each expert. D: distinct
// experts on the rank; S: elements of an expert; own: those of the rank.
//
// Expert tensors take at most, in bytes:
//
//   24*E*L*ceil(S/N)  owned state: weights, moments, gradient in double and rounded
//   C*S*4*(P + 1)     weights of a layer and of the P layers that are prefetched
//   C*S*8*G           gradients of one layer, G = 1, or of two where re-sharding is delayed, G = 2
//   C*S*16            a send and a receive buffer; C*8*(S + (N - 2)*ceil(S/N)) where that is more,
//                     with experts of less than N*N elements
//
// C: the most slots that a rank has had. reduce_gradients() asserts it.
#pragma once

#include "trainer/model/expert_store.h"

namespace moetrain {

// Arguments have been checked by make_expert_store(), which says what `released` does.
std::unique_ptr<ExpertStore> make_sharded_store(Device& device, const ModelConfig& config,
                                                const ComputePlacement& placement, uint32_t rank,
                                                std::vector<OwnedRange> released);

}  // namespace moetrain
