#include "trainer/checkpoint/units.h"

#include <fmt/format.h>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

void append(StateUnit& unit, const ParameterSpec& spec, StateBuffer buffer) {
  UnitTensor tensor{.parameter = spec.name, .buffer = buffer, .shape = spec.shape};
  tensor.offset = unit.bytes;
  tensor.bytes = spec.elements() * sizeof(float);
  unit.bytes += tensor.bytes;
  unit.tensors.push_back(std::move(tensor));
}

void append_all(StateUnit& unit, const std::vector<ParameterSpec>& specs, StateBuffer buffer) {
  for (const ParameterSpec& spec : specs) append(unit, spec, buffer);
}

// Which dense unit a parameter belongs to.
std::string dense_unit_name(const ParameterSpec& spec) {
  const auto contains = [&](const char* text) { return spec.name.find(text) != std::string::npos; };
  if (!spec.layer) return contains("embed_tokens") ? "embed" : "head";
  const bool attention = contains("self_attn") || contains("input_layernorm");
  return fmt::format("layers.{}.{}", *spec.layer, attention ? "attention" : "router");
}

// Dense units in the order in which their first parameter comes; parameters in the model's order.
std::vector<StateUnit> dense_units(const ModelConfig& config) {
  std::vector<StateUnit> units;
  std::vector<std::vector<ParameterSpec>> members;
  for (const ParameterSpec& spec : dense_parameters(config)) {
    const std::string name = dense_unit_name(spec);
    size_t at = 0;
    while (at < units.size() && units[at].name != name) ++at;
    if (at == units.size()) {
      units.push_back({.name = name, .layer = spec.layer});
      members.emplace_back();
    }
    members[at].push_back(spec);
  }
  for (size_t i = 0; i < units.size(); ++i) {
    append_all(units[i], members[i], StateBuffer::kValue);
    append_all(units[i], members[i], StateBuffer::kFirstMoment);
    append_all(units[i], members[i], StateBuffer::kSecondMoment);
  }
  return units;
}

void append_expert_units(const ModelConfig& config, uint32_t layer, uint32_t expert,
                         std::vector<StateUnit>& units) {
  const std::vector<ParameterSpec> specs = expert_parameters(config, layer, expert);
  const std::string name = fmt::format("layers.{}.experts.{}", layer, expert);
  StateUnit weights{.name = name + ".weights", .layer = layer, .expert = expert, .part = "weights"};
  append_all(weights, specs, StateBuffer::kValue);
  StateUnit optimizer{
      .name = name + ".optimizer", .layer = layer, .expert = expert, .part = "optimizer"};
  append_all(optimizer, specs, StateBuffer::kFirstMoment);
  append_all(optimizer, specs, StateBuffer::kSecondMoment);
  units.push_back(std::move(weights));
  units.push_back(std::move(optimizer));
}

}  // namespace

std::string UnitTensor::name() const {
  switch (buffer) {
    case StateBuffer::kValue:
      return parameter;
    case StateBuffer::kFirstMoment:
      return "optimizer.m." + parameter;
    case StateBuffer::kSecondMoment:
      return "optimizer.v." + parameter;
  }
  CKPT_ASSERT(false);
}

std::vector<StateUnit> state_units(const ModelConfig& config) {
  std::vector<StateUnit> units;
  units.push_back({.name = "trainer", .bytes = trainer_unit_bytes(config.layers, config.experts)});
  for (StateUnit& unit : dense_units(config)) units.push_back(std::move(unit));
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    for (uint32_t expert = 0; expert < config.experts; ++expert) {
      append_expert_units(config, layer, expert, units);
    }
  }
  return units;
}

uint64_t total_bytes(const std::vector<StateUnit>& units) {
  uint64_t bytes = 0;
  for (const StateUnit& unit : units) bytes += unit.bytes;
  return bytes;
}

}  // namespace moetrain
