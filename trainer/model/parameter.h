// Parameter: one named tensor of the model with its gradient and its optimizer state, on a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/model/config.h"

namespace moetrain {

// What a tensor is called and how it is shaped, without its memory.
struct ParameterSpec {
  std::string name;             // as Hugging Face has it: "model.layers.3.self_attn.q_proj.weight"
  std::vector<uint64_t> shape;  // row-major; a linear layer is [out, in]
  std::optional<uint32_t> layer;   // none: embedding, last norm, head
  std::optional<uint32_t> expert;  // none: dense, replicated on every rank
  bool is_norm = false;            // 1-D scale: starts at one, no weight decay
  uint64_t elements() const;
  bool operator==(const ParameterSpec&) const = default;
};

// fp32 master weights and moments. All buffers have spec.elements() values, but that `grad_sum` is
// empty where the device adds up in fp32. Gradients are sums over the
// micro-batches since Model::begin_step(); which of the two holds them, and when, is said in
// gradients.h.
struct Parameter {
  ParameterSpec spec;
  Tensor value;
  Tensor grad;
  Tensor grad_sum;  // kDouble
  Tensor m;         // AdamW's first moment
  Tensor v;         // AdamW's second moment

  Parameter() = default;
  Parameter(Device& device, ParameterSpec s);  // all zero

  // As products read it: the value, or its copy in the device's flow().
  const Tensor& weights() const { return rounded.empty() ? value : rounded; }
  // What backward adds to.
  Tensor& sum() { return grad_sum.empty() ? grad : grad_sum; }
  // After `value` was written by anybody but the optimizer.
  void value_changed();

  Tensor rounded;  // empty where the device computes in fp32, and for a norm
};

// Every dense tensor of the model in the fixed order in which all ranks hold, reduce and save them:
// embedding; per layer q, k, v, o, both norms, router; last norm; head.
std::vector<ParameterSpec> dense_parameters(const ModelConfig& config);

// w1, w2, w3 of one expert, in this order.
std::vector<ParameterSpec> expert_parameters(const ModelConfig& config, uint32_t layer,
                                             uint32_t expert);

// Fills `parameter.value`: ones for a norm, otherwise normal(0, init_range). Element i depends only
// on (seed, name, i), so a tensor has the same bits on whatever rank and in whatever order it is
// made. The gradient and the moments become zero.
void initialise(Parameter& parameter, uint64_t seed, double init_range);

}  // namespace moetrain
