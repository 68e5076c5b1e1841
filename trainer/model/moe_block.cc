#include "trainer/model/moe_block.h"

#include <algorithm>

#include "kernels/gate_topk.h"
#include "kernels/linear.h"
#include "kernels/permute.h"
#include "kernels/rmsnorm.h"

namespace moetrain {

namespace kernels = ckpt::kernels;

namespace {
kernels::RmsNormShape norm_shape(const ModelConfig& config, int64_t tokens) {
  return {tokens, config.hidden, static_cast<float>(config.rms_eps)};
}
}  // namespace

Status MoeBlock::forward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                         std::span<float> x) {
  const int64_t hidden = config_.hidden;
  const int64_t experts = config_.experts;
  tokens_ = static_cast<int64_t>(x.size()) / hidden;
  input_.assign(x.begin(), x.end());
  normed_.resize(x.size());
  inverse_rms_.resize(static_cast<size_t>(tokens_));
  probabilities_.resize(static_cast<size_t>(tokens_ * experts));
  choice_.resize(static_cast<size_t>(tokens_) * config_.top_k);
  weight_.resize(choice_.size());
  kernels::rmsnorm_forward(norm_shape(config_, tokens_), input_.data(),
                           parameters.norm->value.data(), normed_.data(), inverse_rms_.data());
  kernels::linear_forward(to_experts(), normed_.data(), parameters.gate->value.data(),
                          probabilities_.data());
  kernels::gate_topk_forward({tokens_, experts, config_.top_k}, probabilities_.data(),
                             probabilities_.data(), choice_.data(), weight_.data());

  CKPT_TRY(dispatch_.plan(comm, store.placement(), layer_, config_.top_k, choice_));
  const kernels::PermuteShape rows{tokens_, config_.top_k, hidden};
  sent_.resize(static_cast<size_t>(dispatch_.sent_rows() * hidden));
  kernels::permute_forward(rows, normed_.data(), dispatch_.positions().data(), sent_.data());
  CKPT_TRY(run_experts(comm, store));
  kernels::unpermute_forward(rows, returned_.data(), dispatch_.positions().data(), weight_.data(),
                             x.data());
  return {};
}

Result<std::vector<kernels::ExpertGroup>> MoeBlock::acquire_groups(Comm& comm, ExpertStore& store) {
  CKPT_ASSIGN(const std::span<const ExpertSlot> slots, store.acquire(comm, layer_));
  CKPT_ASSERT(slots.size() == dispatch_.slot_rows().size());
  std::vector<kernels::ExpertGroup> groups;
  for (size_t i = 0; i < slots.size(); ++i) {
    const ExpertSlot& slot = slots[i];
    groups.push_back(
        {dispatch_.slot_rows()[i], slot.w1, slot.w2, slot.w3, slot.dw1, slot.dw2, slot.dw3});
  }
  return groups;
}

// sent_ -> expert_in_ -> expert_out_ -> returned_
Status MoeBlock::run_experts(Comm& comm, ExpertStore& store) {
  const int64_t hidden = config_.hidden;
  const int64_t intermediate = config_.intermediate;
  const size_t received = static_cast<size_t>(dispatch_.received_rows());
  expert_in_.resize(received * config_.hidden);
  expert_out_.resize(expert_in_.size());
  gate_out_.resize(received * config_.intermediate);
  up_out_.resize(gate_out_.size());
  inner_.resize(gate_out_.size());
  returned_.resize(sent_.size());
  CKPT_TRY(dispatch_.to_experts(comm, hidden, sent_, expert_in_));
  CKPT_ASSIGN(const auto groups, acquire_groups(comm, store));
  kernels::expert_gemm_forward({hidden, intermediate}, groups, expert_in_.data(),
                               {gate_out_.data(), up_out_.data(), inner_.data()},
                               expert_out_.data());
  return dispatch_.to_tokens(comm, hidden, expert_out_, returned_);
}

// The same way for gradients: returned_ -> expert_out_ -> dexpert_in_ -> sent_
Status MoeBlock::run_experts_backward(Comm& comm, ExpertStore& store) {
  const int64_t hidden = config_.hidden;
  dexpert_in_.resize(expert_in_.size());
  CKPT_TRY(dispatch_.to_experts(comm, hidden, returned_, expert_out_));
  CKPT_ASSIGN(const auto groups, acquire_groups(comm, store));
  kernels::expert_gemm_backward(
      {hidden, config_.intermediate}, groups, expert_out_.data(), expert_in_.data(),
      {gate_out_.data(), up_out_.data(), inner_.data()}, dexpert_in_.data());
  CKPT_TRY(store.give_gradients(comm, layer_));
  return dispatch_.to_tokens(comm, hidden, dexpert_in_, sent_);
}

Status MoeBlock::backward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                          std::span<const float> dprobability, std::span<float> dx) {
  const int64_t hidden = config_.hidden;
  const int64_t experts = config_.experts;
  const kernels::PermuteShape rows{tokens_, config_.top_k, hidden};
  dweight_.resize(weight_.size());
  kernels::unpermute_backward(rows, dx.data(), returned_.data(), dispatch_.positions().data(),
                              weight_.data(), returned_.data(), dweight_.data());
  CKPT_TRY(run_experts_backward(comm, store));

  dnormed_.assign(normed_.size(), 0.0f);
  kernels::permute_backward(rows, sent_.data(), dispatch_.positions().data(), dnormed_.data());
  dlogits_.resize(probabilities_.size());
  kernels::gate_topk_backward({tokens_, experts, config_.top_k}, dweight_.data(),
                              dprobability.data(), probabilities_.data(), choice_.data(),
                              weight_.data(), dlogits_.data());
  scratch_.resize(parameters.gate->value.size());
  kernels::linear_backward_weight(to_experts(), dlogits_.data(), normed_.data(), scratch_.data(),
                                  parameters.gate->grad_sum.data());
  kernels::linear_backward_input(to_experts(), dlogits_.data(), parameters.gate->value.data(),
                                 dnormed_.data(), kernels::Write::kAdd);
  kernels::rmsnorm_backward(norm_shape(config_, tokens_), dnormed_.data(), input_.data(),
                            parameters.norm->value.data(), inverse_rms_.data(), dx.data(),
                            parameters.norm->grad_sum.data());
  return {};
}

}  // namespace moetrain
