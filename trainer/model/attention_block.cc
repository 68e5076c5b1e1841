#include "trainer/model/attention_block.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"

namespace moetrain {

namespace kernels = ckpt::kernels;

namespace {

kernels::AttentionShape attention_shape(const ModelConfig& config, int64_t tokens) {
  return {tokens / config.seq_len, config.seq_len, config.heads, config.kv_heads, config.head_dim};
}

kernels::RmsNormShape norm_shape(const ModelConfig& config, int64_t tokens) {
  return {tokens, config.hidden, static_cast<float>(config.rms_eps)};
}

}  // namespace

RopeTable::RopeTable(const ModelConfig& config)
    : cosine(size_t{config.seq_len} * config.head_dim / 2), sine(cosine.size()) {
  kernels::rope_table(config.seq_len, config.head_dim, config.rope_theta, cosine.data(),
                      sine.data());
}

void AttentionBlock::rotate(std::vector<float>& q, std::vector<float>& k, bool inverse) const {
  const kernels::RopeShape query{tokens_, config_.seq_len, config_.heads, config_.head_dim};
  const kernels::RopeShape key{tokens_, config_.seq_len, config_.kv_heads, config_.head_dim};
  const auto turn = [&](const kernels::RopeShape& shape, std::vector<float>& x) {
    if (inverse) {
      kernels::rope_backward(shape, rope_.cosine.data(), rope_.sine.data(), x.data());
    } else {
      kernels::rope_forward(shape, rope_.cosine.data(), rope_.sine.data(), x.data());
    }
  };
  turn(query, q);
  turn(key, k);
}

void AttentionBlock::forward(const AttentionParameters& parameters, std::span<float> x) {
  const int64_t hidden = config_.hidden;
  tokens_ = static_cast<int64_t>(x.size()) / hidden;
  input_.assign(x.begin(), x.end());
  normed_.resize(x.size());
  inverse_rms_.resize(static_cast<size_t>(tokens_));
  q_.resize(static_cast<size_t>(tokens_ * query_width()));
  k_.resize(static_cast<size_t>(tokens_ * key_width()));
  v_.resize(k_.size());
  context_.resize(q_.size());
  const kernels::AttentionShape shape = attention_shape(config_, tokens_);
  probabilities_.resize(static_cast<size_t>(shape.probability_count()));

  kernels::rmsnorm_forward(norm_shape(config_, tokens_), input_.data(),
                           parameters.norm->value.data(), normed_.data(), inverse_rms_.data());
  kernels::linear_forward(to_query(), normed_.data(), parameters.q->value.data(), q_.data());
  kernels::linear_forward(to_key(), normed_.data(), parameters.k->value.data(), k_.data());
  kernels::linear_forward(to_key(), normed_.data(), parameters.v->value.data(), v_.data());
  rotate(q_, k_, /*inverse=*/false);
  kernels::attention_forward(shape, q_.data(), k_.data(), v_.data(), probabilities_.data(),
                             context_.data());
  kernels::linear_forward(to_hidden(), context_.data(), parameters.o->value.data(), x.data(),
                          kernels::Write::kAdd);
}

void AttentionBlock::backward(const AttentionParameters& parameters, std::span<float> dx) {
  const size_t widest = std::max(parameters.q->value.size(), parameters.k->value.size());
  weight_scratch_.resize(widest);
  dcontext_.resize(context_.size());
  kernels::linear_backward_weight(to_hidden(), dx.data(), context_.data(), weight_scratch_.data(),
                                  parameters.o->grad_sum.data());
  kernels::linear_backward_input(to_hidden(), dx.data(), parameters.o->value.data(),
                                 dcontext_.data());

  dq_.resize(q_.size());
  dk_.resize(k_.size());
  dv_.resize(v_.size());
  scratch_.resize(size_t{config_.seq_len} * config_.seq_len);
  kernels::attention_backward(attention_shape(config_, tokens_), dcontext_.data(), q_.data(),
                              k_.data(), v_.data(), probabilities_.data(),
                              {dq_.data(), dk_.data(), dv_.data(), scratch_.data()});
  rotate(dq_, dk_, /*inverse=*/true);

  kernels::linear_backward_weight(to_query(), dq_.data(), normed_.data(), weight_scratch_.data(),
                                  parameters.q->grad_sum.data());
  kernels::linear_backward_weight(to_key(), dk_.data(), normed_.data(), weight_scratch_.data(),
                                  parameters.k->grad_sum.data());
  kernels::linear_backward_weight(to_key(), dv_.data(), normed_.data(), weight_scratch_.data(),
                                  parameters.v->grad_sum.data());
  dnormed_.resize(normed_.size());
  kernels::linear_backward_input(to_query(), dq_.data(), parameters.q->value.data(),
                                 dnormed_.data());
  kernels::linear_backward_input(to_key(), dk_.data(), parameters.k->value.data(), dnormed_.data(),
                                 kernels::Write::kAdd);
  kernels::linear_backward_input(to_key(), dv_.data(), parameters.v->value.data(), dnormed_.data(),
                                 kernels::Write::kAdd);
  kernels::rmsnorm_backward(norm_shape(config_, tokens_), dnormed_.data(), input_.data(),
                            parameters.norm->value.data(), inverse_rms_.data(), dx.data(),
                            parameters.norm->grad_sum.data());
}

}  // namespace moetrain
