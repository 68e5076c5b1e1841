// The MoE half of a decoder layer: x += sum_k weight_k * expert_k( RMSNorm(x) ), experts anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/device/device.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/expert_store.h"
#include "trainer/model/parameter.h"
#include "trainer/model/step_profile.h"

namespace moetrain {

struct MoeParameters {
  Parameter* gate = nullptr;  // [experts, hidden]
  Parameter* norm = nullptr;  // [hidden]
};

// Keeps the values of the last forward that backward needs. forward and backward are collectives.
class MoeBlock {
 public:
  // `profile` outlives the block.
  MoeBlock(Device& device, const ModelConfig& config, uint32_t layer, StepProfile& profile)
      : device_(device), config_(config), layer_(layer), profile_(profile), dispatch_(device) {}

  // x: [tokens, hidden], updated in place. skew: [tokens, experts], added to the router's logits;
  // or empty.
  Status forward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                 const Tensor& skew, Tensor& x);

  // dx: gradient of forward's output in x; becomes the gradient of its input. dprobability:
  // [experts], the auxiliary loss's gradient for every token's probabilities. Adds to the gradients
  // of the parameters and of the experts. Call this once per forward.
  Status backward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                  const Tensor& dprobability, Tensor& dx);

  // Results of the last forward: router probabilities [tokens, experts], chosen experts
  // [tokens, top_k].
  const Tensor& probabilities() const { return probabilities_; }
  std::span<const int32_t> choice() const { return host_choice_; }
  // Rows of every rank's experts.
  std::span<const int64_t> rank_rows() const { return dispatch_.rank_rows(); }
  // Since begin_step(): CPU time of this thread in the experts' arithmetic, forward and backward.
  // On a GPU this is only the time to queue its work.
  int64_t expert_ns() const { return expert_ns_; }
  // Since begin_step(): bytes of rows received from other ranks, and of their gradients.
  uint64_t received_bytes() const { return dispatch_.received_bytes(); }
  void begin_step() {
    expert_ns_ = 0;
    dispatch_.clear_received();
  }

 private:
  ckpt::kernels::LinearShape router_shape() const {
    return {tokens_, config_.hidden, config_.experts, config_.seq_len};
  }
  // Rows to the experts, or back to their tokens.
  Status to_experts(Comm& comm, const Tensor& rows, Tensor& expert_rows);
  Status to_tokens(Comm& comm, const Tensor& expert_rows, Tensor& rows);
  Status run_experts(Comm& comm, ExpertStore& store);
  Status run_experts_backward(Comm& comm, ExpertStore& store);
  Result<std::vector<ExpertRows>> acquire_experts(Comm& comm, ExpertStore& store, Pass pass);

  Device& device_;
  const ModelConfig& config_;
  const uint32_t layer_;
  StepProfile& profile_;
  int64_t tokens_ = 0;
  int64_t expert_ns_ = 0;
  Dispatch dispatch_;
  Tensor input_;
  Tensor normed_;
  Tensor inverse_rms_;
  Tensor probabilities_;
  Tensor choice_;
  std::vector<int32_t> host_choice_;
  Tensor weight_;
  Tensor sent_;        // rows in send order: going out, then their gradients
  Tensor returned_;    // the experts' results; then their gradient
  Tensor expert_in_;   // rows in expert order
  Tensor expert_out_;  // their results; then their gradient
  Tensor dexpert_in_;
  Device::ExpertActivations activations_;
  Tensor dweight_, dlogits_, flowing_dlogits_, dnormed_;
};

}  // namespace moetrain
