#include "trainer/model/moe_block.h"

#include <ctime>

#include "trainer/model/norm_shape.h"

namespace moetrain {

namespace {

// Adds the CPU time that this thread uses while it lives.
class CpuTime {
 public:
  explicit CpuTime(int64_t& total_ns) : total_ns_(total_ns) {}
  CpuTime(const CpuTime&) = delete;
  CpuTime& operator=(const CpuTime&) = delete;
  ~CpuTime() { total_ns_ += now_ns() - start_ns_; }

 private:
  static int64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  int64_t& total_ns_;
  const int64_t start_ns_ = now_ns();
};

}  // namespace

Status MoeBlock::forward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                         const Tensor& skew, Tensor& x) {
  const int64_t hidden = config_.hidden;
  const int64_t experts = config_.experts;
  tokens_ = static_cast<int64_t>(x.size()) / hidden;
  input_.copy_from(x);
  normed_.reshape(device_, device_.flow(), x.size());
  inverse_rms_.reshape(device_, Type::kFloat, static_cast<size_t>(tokens_));
  probabilities_.reshape(device_, Type::kFloat, static_cast<size_t>(tokens_ * experts));
  choice_.reshape(device_, Type::kInt32, static_cast<size_t>(tokens_) * config_.top_k);
  weight_.reshape(device_, Type::kFloat, choice_.size());
  device_.rmsnorm_forward(norm_shape(config_, tokens_), input_, parameters.norm->value, normed_,
                          inverse_rms_);
  if (!skew.empty()) probabilities_.copy_from(skew);
  device_.linear_forward(router_shape(), normed_, parameters.gate->weights(), probabilities_,
                         skew.empty() ? kernels::Write::kReplace : kernels::Write::kAdd);
  device_.gate_topk_forward({tokens_, experts, config_.top_k}, probabilities_, choice_, weight_);

  host_choice_.resize(choice_.size());
  CKPT_TRY(choice_.read(std::span(host_choice_)));
  CKPT_TRY(dispatch_.plan(comm, store.placement(), layer_, config_.top_k, host_choice_));
  const kernels::PermuteShape rows{tokens_, config_.top_k, hidden};
  sent_.reshape(device_, device_.flow(), static_cast<size_t>(dispatch_.sent_rows() * hidden));
  device_.permute_forward(rows, normed_, dispatch_.positions(), sent_);
  CKPT_TRY(run_experts(comm, store));
  device_.unpermute_forward(rows, returned_, dispatch_.positions(), weight_, x);
  return {};
}

Result<std::vector<ExpertRows>> MoeBlock::acquire_experts(Comm& comm, ExpertStore& store,
                                                          Pass pass) {
  CKPT_ASSIGN(const std::span<const ExpertTensors> held, store.acquire(comm, layer_, pass));
  CKPT_ASSERT(held.size() == dispatch_.expert_rows().size());
  std::vector<ExpertRows> experts;
  experts.reserve(held.size());
  for (size_t i = 0; i < held.size(); ++i) {
    experts.push_back({dispatch_.expert_rows()[i], held[i]});
  }
  return experts;
}

Status MoeBlock::to_experts(Comm& comm, const Tensor& rows, Tensor& expert_rows) {
  const StepProfile::Timer timed(profile_, Activity::kTokens, Lane::kCompute, layer_);
  return dispatch_.to_experts(comm, config_.hidden, rows, expert_rows);
}

Status MoeBlock::to_tokens(Comm& comm, const Tensor& expert_rows, Tensor& rows) {
  const StepProfile::Timer timed(profile_, Activity::kTokens, Lane::kCompute, layer_);
  return dispatch_.to_tokens(comm, config_.hidden, expert_rows, rows);
}

// sent_ -> expert_in_ -> expert_out_ -> returned_
Status MoeBlock::run_experts(Comm& comm, ExpertStore& store) {
  const int64_t hidden = config_.hidden;
  const int64_t intermediate = config_.intermediate;
  const auto received = static_cast<size_t>(dispatch_.received_rows());
  const Type flow = device_.flow();
  expert_in_.reshape(device_, flow, received * config_.hidden);
  expert_out_.reshape(device_, flow, expert_in_.size());
  for (Tensor* tensor : {&activations_.gate, &activations_.up, &activations_.inner}) {
    tensor->reshape(device_, flow, received * config_.intermediate);
  }
  returned_.reshape(device_, flow, sent_.size());
  CKPT_TRY(to_experts(comm, sent_, expert_in_));
  CKPT_ASSIGN(const auto experts, acquire_experts(comm, store, Pass::kForward));
  {
    const CpuTime timed(expert_ns_);
    const StepProfile::Timer span(profile_, Activity::kExpertsForward, Lane::kCompute, layer_);
    device_.expert_gemm_forward({hidden, intermediate}, experts, expert_in_, activations_,
                                expert_out_);
  }
  return to_tokens(comm, expert_out_, returned_);
}

// The same way for gradients: returned_ -> expert_out_ -> dexpert_in_ -> sent_
Status MoeBlock::run_experts_backward(Comm& comm, ExpertStore& store) {
  const int64_t hidden = config_.hidden;
  dexpert_in_.reshape(device_, device_.flow(), expert_in_.size());
  CKPT_TRY(to_experts(comm, returned_, expert_out_));
  CKPT_ASSIGN(const auto experts, acquire_experts(comm, store, Pass::kBackward));
  {
    const CpuTime timed(expert_ns_);
    const StepProfile::Timer span(profile_, Activity::kExpertsBackward, Lane::kCompute, layer_);
    device_.expert_gemm_backward({hidden, config_.intermediate}, experts, expert_out_, expert_in_,
                                 activations_, dexpert_in_);
  }
  CKPT_TRY(store.give_gradients(comm, layer_));
  return to_tokens(comm, dexpert_in_, sent_);
}

Status MoeBlock::backward(Comm& comm, ExpertStore& store, const MoeParameters& parameters,
                          const Tensor& dprobability, Tensor& dx) {
  const kernels::PermuteShape rows{tokens_, config_.top_k, config_.hidden};
  dweight_.reshape(device_, Type::kFloat, weight_.size());
  device_.unpermute_backward(rows, dx, returned_, dispatch_.positions(), weight_, dweight_);
  CKPT_TRY(run_experts_backward(comm, store));

  dnormed_.reshape(device_, Type::kFloat, normed_.size());
  dnormed_.zero();
  device_.permute_backward(rows, sent_, dispatch_.positions(), dnormed_);
  dlogits_.reshape(device_, Type::kFloat, probabilities_.size());
  device_.gate_topk_backward({tokens_, config_.experts, config_.top_k}, dweight_, dprobability,
                             probabilities_, choice_, weight_, dlogits_);
  const Tensor& dlogits = device_.as_flow(dlogits_, flowing_dlogits_);
  device_.linear_backward_weight(router_shape(), dlogits, normed_, parameters.gate->sum());
  device_.linear_backward_input(router_shape(), dlogits, parameters.gate->weights(), dnormed_,
                                kernels::Write::kAdd);
  device_.rmsnorm_backward(norm_shape(config_, tokens_), dnormed_, input_, parameters.norm->value,
                           inverse_rms_, dx, parameters.norm->sum());
  return {};
}

}  // namespace moetrain
