// Gradients between backward and the optimizer: reduced over ranks, then judged.
//
// After the micro-batches of a step, a dense parameter's sum() holds the gradient over this rank's
// tokens; those of experts are with their store (model/expert_store.h). reduce_gradients() gives
// all of them their `grad`, the same bits on every rank that holds them; summarise_gradients() then
// gives every rank the same verdict.
//
// On the host, what is added up over tokens is fp32 per sequence and double from there on; for
// experts, double from the start. Sums of fp32 values in double hardly ever round, so a gradient
// has the same bits whatever number of ranks the sequences are dealt to, and however many replicas
// share an expert's tokens. That matters more than its last digit does: which expert a token is
// routed to changes all at once, and losses of two runs then drift apart by a thousandth. On a GPU
// all is fp32: the same number of ranks gives the same bits, another number rounds differently.
#pragma once

#include "trainer/comm/comm.h"
#include "trainer/model/model.h"

namespace moetrain {

inline constexpr uint64_t kGradientBucketBytes = 1u << 20;

// Dense gradients, and those of experts (ExpertStore::reduce_gradients()). A collective.
Status reduce_gradients(Comm& comm, Model& model, uint64_t bucket_bytes = kGradientBucketBytes);

// Sums sum() over all ranks into grad, in buckets of at most `bucket_bytes` (a
// larger tensor is a bucket of its own) filled in parameter order. A collective. After a failure
// the gradients are undefined and the step must not be applied.
Status reduce_dense_gradients(Comm& comm, Model& model,
                              uint64_t bucket_bytes = kGradientBucketBytes);

struct GradientSummary {
  double norm = 0;     // L2 over the whole model, every expert counted once
  bool finite = true;  // false: some gradient is NaN or Inf; the step must be skipped
};

// The same bits on every rank. A collective; call after reduce_gradients(). Each element of an
// expert is counted by one rank (Ownership::counted()). With sharded experts on a host their part
// of the norm does not depend on the number of ranks: the sum of squares is exact (exact_sum.h).
Result<GradientSummary> summarise_gradients(Comm& comm, Model& model);

// Factor that brings a gradient of this norm down to `norm_max`; 1 if it is there already or if
// norm_max is 0 (no clipping). As torch.nn.utils.clip_grad_norm_: norm_max / (norm + 1e-6).
double clip_factor(double norm, double norm_max);

}  // namespace moetrain
