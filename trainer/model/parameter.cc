#include "trainer/model/parameter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "formats/base/hash.h"
#include "trainer/model/philox.h"

namespace moetrain {
namespace {

ParameterSpec matrix(std::string name, uint64_t out, uint64_t in,
                     std::optional<uint32_t> layer = {}, std::optional<uint32_t> expert = {}) {
  return {std::move(name), {out, in}, layer, expert, false};
}

ParameterSpec norm(std::string name, uint64_t width, std::optional<uint32_t> layer = {}) {
  return {std::move(name), {width}, layer, std::nullopt, true};
}

std::string layer_prefix(uint32_t layer) { return fmt::format("model.layers.{}.", layer); }

// Two normal values from one pair of 32-bit ones (Box-Muller).
void normal_pair(uint32_t a, uint32_t b, double sigma, double out[2]) {
  const double radius = sigma * std::sqrt(-2 * std::log(unit_uniform(a)));
  const double angle = 2 * std::numbers::pi * unit_uniform(b);
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

// normal(0, init_range), element by element a function of (seed, name, index).
void fill_normal(const std::string& name, uint64_t seed, double init_range,
                 std::span<float> value) {
  // The name's hash is the key: tensors draw from unrelated sequences under the same seed.
  const ckpt::base::Hash128 key = ckpt::base::hash128(ckpt::as_bytes(name), seed);
  for (uint64_t begin = 0; begin < value.size(); begin += 4) {
    const auto bits = philox(key.low, begin / 4, key.high);
    double normal[4];
    normal_pair(bits[0], bits[1], init_range, normal);
    normal_pair(bits[2], bits[3], init_range, normal + 2);
    const uint64_t count = std::min<uint64_t>(4, value.size() - begin);
    for (uint64_t i = 0; i < count; ++i) value[begin + i] = static_cast<float>(normal[i]);
  }
}

}  // namespace

uint64_t ParameterSpec::elements() const {
  uint64_t product = 1;
  for (const uint64_t extent : shape) product *= extent;
  return product;
}

Parameter::Parameter(Device& device, ParameterSpec s)
    : spec(std::move(s)),
      value(device, Type::kFloat, spec.elements()),
      grad(device, Type::kFloat, spec.elements()),
      m(device, Type::kFloat, spec.elements()),
      v(device, Type::kFloat, spec.elements()) {
  if (device.grad_sum() != Type::kFloat) {
    grad_sum.reshape(device, device.grad_sum(), spec.elements());
  }
  for (Tensor* tensor : {&value, &grad, &grad_sum, &m, &v}) tensor->zero();
  value_changed();
}

void Parameter::value_changed() {
  if (!spec.is_norm) (void)value.device()->as_flow(value, rounded);
}

std::vector<ParameterSpec> dense_parameters(const ModelConfig& config) {
  const uint64_t query_width = uint64_t{config.heads} * config.head_dim;
  const uint64_t key_width = uint64_t{config.kv_heads} * config.head_dim;
  std::vector<ParameterSpec> specs;
  specs.push_back(matrix("model.embed_tokens.weight", config.vocab, config.hidden));
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = layer_prefix(layer);
    const std::string attention = prefix + "self_attn.";
    specs.push_back(matrix(attention + "q_proj.weight", query_width, config.hidden, layer));
    specs.push_back(matrix(attention + "k_proj.weight", key_width, config.hidden, layer));
    specs.push_back(matrix(attention + "v_proj.weight", key_width, config.hidden, layer));
    specs.push_back(matrix(attention + "o_proj.weight", config.hidden, query_width, layer));
    specs.push_back(norm(prefix + "input_layernorm.weight", config.hidden, layer));
    specs.push_back(norm(prefix + "post_attention_layernorm.weight", config.hidden, layer));
    specs.push_back(
        matrix(prefix + "block_sparse_moe.gate.weight", config.experts, config.hidden, layer));
  }
  specs.push_back(norm("model.norm.weight", config.hidden));
  specs.push_back(matrix("lm_head.weight", config.vocab, config.hidden));
  return specs;
}

std::vector<ParameterSpec> expert_parameters(const ModelConfig& config, uint32_t layer,
                                             uint32_t expert) {
  const std::string prefix =
      fmt::format("{}block_sparse_moe.experts.{}.", layer_prefix(layer), expert);
  return {matrix(prefix + "w1.weight", config.intermediate, config.hidden, layer, expert),
          matrix(prefix + "w2.weight", config.hidden, config.intermediate, layer, expert),
          matrix(prefix + "w3.weight", config.intermediate, config.hidden, layer, expert)};
}

void initialise(Parameter& parameter, uint64_t seed, double init_range) {
  for (Tensor* tensor : {&parameter.grad, &parameter.grad_sum, &parameter.m, &parameter.v}) {
    tensor->zero();
  }
  std::vector<float> value(parameter.value.size(), 1.0f);
  if (!parameter.spec.is_norm) fill_normal(parameter.spec.name, seed, init_range, value);
  parameter.value.write(std::span<const float>(value));
  parameter.value_changed();
}

}  // namespace moetrain
