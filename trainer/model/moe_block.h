// The MoE half of a decoder layer: x += sum_k weight_k * expert_k( RMSNorm(x) ), experts anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/expert_gemm.h"
#include "kernels/linear.h"
#include "trainer/model/parameter.h"
#include "trainer/parallel/comm.h"
#include "trainer/parallel/dispatch.h"
#include "trainer/parallel/expert_store.h"

namespace moetrain {

struct MoeParameters {
  Parameter* gate = nullptr;  // [experts, hidden]
  Parameter* norm = nullptr;  // [hidden]
};

// Keeps what backward needs of the last forward. forward and backward are collectives.
class MoeBlock {
 public:
  MoeBlock(const ModelConfig& config, uint32_t layer) : config_(config), layer_(layer) {}

  // x: [tokens, hidden], updated in place.
  Status forward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                 std::span<float> x);

  // dx: gradient of what forward left in x; becomes the gradient of what it was given.
  // dprobability: [experts], the auxiliary loss's gradient for every token's probabilities. Adds to
  // the gradients of the parameters and of the experts. Once per forward.
  Status backward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                  std::span<const float> dprobability, std::span<float> dx);

  // Of the last forward: router probabilities [tokens, experts], chosen experts [tokens, top_k].
  std::span<const float> probabilities() const { return probabilities_; }
  std::span<const int32_t> choice() const { return choice_; }

 private:
  ckpt::kernels::LinearShape to_experts() const {
    return {tokens_, config_.hidden, config_.experts, config_.seq_len};
  }
  Status run_experts(Comm& comm, ExpertStore& store);
  Status run_experts_backward(Comm& comm, ExpertStore& store);
  Result<std::vector<ckpt::kernels::ExpertGroup>> acquire_groups(Comm& comm, ExpertStore& store);

  const ModelConfig& config_;
  const uint32_t layer_;
  int64_t tokens_ = 0;
  Dispatch dispatch_;
  std::vector<float> input_;
  std::vector<float> normed_;
  std::vector<float> inverse_rms_;
  std::vector<float> probabilities_;
  std::vector<int32_t> choice_;
  std::vector<float> weight_;
  std::vector<float> sent_;        // rows in send order: going out, then their gradients
  std::vector<float> returned_;    // what the experts gave back; then its gradient
  std::vector<float> expert_in_;   // rows in expert order
  std::vector<float> expert_out_;  // and what is computed from them; then its gradient
  std::vector<float> dexpert_in_;
  std::vector<float> gate_out_, up_out_, inner_;
  std::vector<float> dweight_, dlogits_, dnormed_, scratch_;
};

}  // namespace moetrain
