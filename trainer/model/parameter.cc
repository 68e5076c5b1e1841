#include "trainer/model/parameter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "formats/base/assert.h"
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

// Elements [first, first + values.size()) of the tensor `name`: normal(0, init_range), element by
// element a function of (seed, name, index). Four elements come from one draw.
void fill_normal(const std::string& name, uint64_t seed, double init_range, uint64_t first,
                 std::span<float> values) {
  // The name's hash is the key: tensors draw from unrelated sequences under the same seed.
  const ckpt::base::Hash128 key = ckpt::base::hash128(ckpt::as_bytes(name), seed);
  const uint64_t end = first + values.size();
  for (uint64_t draw = first / 4; draw * 4 < end; ++draw) {
    const auto bits = philox(key.low, draw, key.high);
    double normal[4];
    normal_pair(bits[0], bits[1], init_range, normal);
    normal_pair(bits[2], bits[3], init_range, normal + 2);
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t element = draw * 4 + i;
      if (element < first || element >= end) continue;
      values[element - first] = static_cast<float>(normal[i]);
    }
  }
}

void fill(const ParameterPart& part, uint64_t seed, double init_range) {
  std::vector<float> values(part.elements.size(), 1.0f);
  if (!part.spec.is_norm) {
    fill_normal(part.spec.name, seed, init_range, part.elements.begin, values);
  }
  part.write(&WeightState::value, values);
}

}  // namespace

uint64_t ParameterSpec::elements() const {
  uint64_t product = 1;
  for (const uint64_t extent : shape) product *= extent;
  return product;
}

WeightState::WeightState(Device& device, uint64_t elements, bool norm)
    : value(device, Type::kFloat, elements),
      grad(device, Type::kFloat, elements),
      m(device, Type::kFloat, elements),
      v(device, Type::kFloat, elements),
      is_norm(norm) {
  if (device.grad_sum() != Type::kFloat) grad_sum.reshape(device, device.grad_sum(), elements);
  clear();
  value_changed();
}

void WeightState::clear_gradient() {
  grad.zero();
  grad_sum.zero();
}

void WeightState::clear() {
  for (Tensor* tensor : {&value, &grad, &grad_sum, &m, &v, &rounded}) tensor->zero();
}

void WeightState::value_changed() {
  if (!is_norm) (void)value.device()->as_flow(value, rounded);
}

uint64_t WeightState::memory_bytes() const {
  uint64_t bytes = 0;
  for (const Tensor* tensor : {&value, &grad, &grad_sum, &m, &v, &rounded}) {
    bytes += tensor->room_bytes();
  }
  return bytes;
}

Parameter::Parameter(Device& device, ParameterSpec s)
    : WeightState(device, s.elements(), s.is_norm), spec(std::move(s)) {}

OwnedRange::OwnedRange(Device& device, uint32_t of_layer, uint32_t of_expert, ElementRange range)
    : WeightState(device, range.size(), /*norm=*/false),
      layer(of_layer),
      expert(of_expert),
      elements(range) {}

std::span<std::byte> ParameterPart::bytes_in(Tensor& tensor) const {
  CKPT_ASSERT(at + elements.size() <= tensor.size());
  const size_t width = bytes_of(tensor.type());
  return {tensor.data() + at * width, elements.size() * width};
}

Result<std::vector<float>> ParameterPart::read(Tensor WeightState::*tensor) const {
  Tensor& from = state->*tensor;
  CKPT_ASSERT(from.type() == Type::kFloat);
  std::vector<float> values(elements.size());
  CKPT_TRY(
      from.device()->download(std::as_writable_bytes(std::span(values)), bytes_in(from).data()));
  return values;
}

void ParameterPart::write(Tensor WeightState::*tensor, std::span<const float> values) const {
  Tensor& to = state->*tensor;
  CKPT_ASSERT(to.type() == Type::kFloat && values.size() == elements.size());
  to.device()->upload(bytes_in(to).data(), std::as_bytes(values));
}

ParameterPart whole(Parameter& parameter) {
  return {parameter.spec, {0, parameter.spec.elements()}, &parameter, 0};
}

std::vector<ParameterPart> parts_of(OwnedRange& range, const ModelConfig& config) {
  std::vector<ParameterPart> parts;
  uint64_t first = 0;  // of this matrix, in the expert
  for (ParameterSpec& spec : expert_parameters(config, range.layer, range.expert)) {
    const uint64_t end = first + spec.elements();
    const uint64_t from = std::clamp(range.elements.begin, first, end);
    const uint64_t to = std::clamp(range.elements.end, first, end);
    if (from < to) {
      parts.push_back(
          {std::move(spec), {from - first, to - first}, &range, from - range.elements.begin});
    }
    first = end;
  }
  return parts;
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
  parameter.clear();
  fill(whole(parameter), seed, init_range);
  parameter.value_changed();
}

void initialise(OwnedRange& range, const ModelConfig& config, uint64_t seed) {
  range.clear();
  for (const ParameterPart& part : parts_of(range, config)) fill(part, seed, config.init_range);
  range.value_changed();
}

}  // namespace moetrain
