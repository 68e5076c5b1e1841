#include "trainer/model/attention_block.h"

#include <vector>

#include "trainer/model/norm_shape.h"

namespace moetrain {

namespace {

kernels::AttentionShape attention_shape(const ModelConfig& config, int64_t tokens) {
  return {tokens / config.seq_len, config.seq_len, config.heads, config.kv_heads, config.head_dim};
}

}  // namespace

RopeTable::RopeTable(Device& device, const ModelConfig& config) {
  const size_t size = size_t{config.seq_len} * config.head_dim / 2;
  std::vector<float> cosines(size);
  std::vector<float> sines(size);
  kernels::rope_table(config.seq_len, config.head_dim, config.rope_theta, cosines.data(),
                      sines.data());
  cosine.reshape(device, Type::kFloat, size);
  sine.reshape(device, Type::kFloat, size);
  cosine.write(std::span<const float>(cosines));
  sine.write(std::span<const float>(sines));
}

void AttentionBlock::rotate(Tensor& q, Tensor& k, bool inverse) const {
  const kernels::RopeShape query{tokens_, config_.seq_len, config_.heads, config_.head_dim};
  const kernels::RopeShape key{tokens_, config_.seq_len, config_.kv_heads, config_.head_dim};
  device_.rope(query, rope_.cosine, rope_.sine, q, inverse);
  device_.rope(key, rope_.cosine, rope_.sine, k, inverse);
}

void AttentionBlock::forward(const AttentionParameters& parameters, Tensor& x) {
  tokens_ = static_cast<int64_t>(x.size()) / config_.hidden;
  const Type flow = device_.flow();
  input_.copy_from(x);
  normed_.reshape(device_, flow, x.size());
  inverse_rms_.reshape(device_, Type::kFloat, static_cast<size_t>(tokens_));
  q_.reshape(device_, flow, static_cast<size_t>(tokens_ * query_width()));
  k_.reshape(device_, flow, static_cast<size_t>(tokens_ * key_width()));
  v_.reshape(device_, flow, k_.size());
  context_.reshape(device_, flow, q_.size());
  const kernels::AttentionShape shape = attention_shape(config_, tokens_);
  probabilities_.reshape(device_, flow, static_cast<size_t>(shape.probability_count()));

  device_.rmsnorm_forward(norm_shape(config_, tokens_), input_, parameters.norm->value, normed_,
                          inverse_rms_);
  device_.linear_forward(to_query(), normed_, parameters.q->weights(), q_);
  device_.linear_forward(to_key(), normed_, parameters.k->weights(), k_);
  device_.linear_forward(to_key(), normed_, parameters.v->weights(), v_);
  rotate(q_, k_, /*inverse=*/false);
  device_.attention_forward(shape, q_, k_, v_, probabilities_, context_);
  device_.linear_forward(to_hidden(), context_, parameters.o->weights(), x, kernels::Write::kAdd);
}

void AttentionBlock::backward(const AttentionParameters& parameters, Tensor& dx) {
  const Type flow = device_.flow();
  const Tensor& dout = device_.as_flow(dx, dout_);
  dcontext_.reshape(device_, flow, context_.size());
  device_.linear_backward_weight(to_hidden(), dout, context_, parameters.o->sum());
  device_.linear_backward_input(to_hidden(), dout, parameters.o->weights(), dcontext_);

  dq_.reshape(device_, flow, q_.size());
  dk_.reshape(device_, flow, k_.size());
  dv_.reshape(device_, flow, v_.size());
  device_.attention_backward(attention_shape(config_, tokens_), dcontext_, q_, k_, v_,
                             probabilities_, dq_, dk_, dv_);
  rotate(dq_, dk_, /*inverse=*/true);

  device_.linear_backward_weight(to_query(), dq_, normed_, parameters.q->sum());
  device_.linear_backward_weight(to_key(), dk_, normed_, parameters.k->sum());
  device_.linear_backward_weight(to_key(), dv_, normed_, parameters.v->sum());
  dnormed_.reshape(device_, Type::kFloat, normed_.size());
  device_.linear_backward_input(to_query(), dq_, parameters.q->weights(), dnormed_);
  device_.linear_backward_input(to_key(), dk_, parameters.k->weights(), dnormed_,
                                kernels::Write::kAdd);
  device_.linear_backward_input(to_key(), dv_, parameters.v->weights(), dnormed_,
                                kernels::Write::kAdd);
  device_.rmsnorm_backward(norm_shape(config_, tokens_), dnormed_, input_, parameters.norm->value,
                           inverse_rms_, dx, parameters.norm->sum());
}

}  // namespace moetrain
