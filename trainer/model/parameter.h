// Weights with their gradient and optimizer state, on a device: a dense parameter as a tensor of
// its own, an expert's w1, w2 and w3 as one flat run of elements, of which a rank may own a part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/model/config.h"
#include "trainer/placement/ownership.h"

namespace moetrain {

// A tensor's name and shape, without its memory.
struct ParameterSpec {
  std::string name;             // as Hugging Face has it: "model.layers.3.self_attn.q_proj.weight"
  std::vector<uint64_t> shape;  // row-major; a linear layer is [out, in]
  std::optional<uint32_t> layer;   // none: embedding, last norm, head
  std::optional<uint32_t> expert;  // none: dense, replicated on every rank
  bool is_norm = false;            // 1-D scale: starts at one, no weight decay
  uint64_t elements() const;
  bool operator==(const ParameterSpec&) const = default;
};

// fp32 master weights, their gradient and moments, element by element. Gradients are sums over the
// micro-batches since Model::begin_step(); parallel/gradients.h says which of `grad` and `grad_sum`
// holds them when.
struct WeightState {
  Tensor value;
  Tensor grad;
  Tensor grad_sum;  // kDouble; empty where the device adds up in fp32
  Tensor m;         // AdamW's first moment
  Tensor v;         // AdamW's second moment
  Tensor rounded;   // value in the device's flow(); empty where that is fp32, and for a norm
  bool is_norm = false;

  WeightState() = default;
  WeightState(Device& device, uint64_t elements, bool norm);  // all zero

  // The tensor that matrix products read.
  const Tensor& weights() const { return rounded.empty() ? value : rounded; }
  // The tensor that backward adds gradients to.
  Tensor& sum() { return grad_sum.empty() ? grad : grad_sum; }
  // Zeroes the gradient.
  void clear_gradient();
  // Zeroes everything.
  void clear();
  // Call this after code other than the optimizer wrote `value`.
  void value_changed();
  // Bytes of device memory, all tensors together.
  uint64_t memory_bytes() const;
};

// A dense parameter: one named tensor, replicated on every rank.
struct Parameter : WeightState {
  ParameterSpec spec;

  Parameter() = default;
  Parameter(Device& device, ParameterSpec s);  // all zero
};

// The part of one expert's state that a rank owns: `elements` of its w1, w2 and w3, one after the
// other. With replicated state that is the whole expert.
struct OwnedRange : WeightState {
  uint32_t layer = 0;
  uint32_t expert = 0;
  ElementRange elements;

  OwnedRange() = default;
  OwnedRange(Device& device, uint32_t of_layer, uint32_t of_expert,
             ElementRange range);  // all zero
};

// A named parameter, or the owned part of one, and where its elements lie: element i of the
// parameter, for i in `elements`, is element `at + i - elements.begin` of the tensors of `state`.
struct ParameterPart {
  ParameterSpec spec;
  ElementRange elements;
  WeightState* state = nullptr;
  uint64_t at = 0;

  // The bytes of this part in a tensor of `state`: memory of its device.
  std::span<std::byte> bytes_in(Tensor& tensor) const;
  // Copies of this part of a kFloat tensor of `state`, such as &WeightState::value.
  Result<std::vector<float>> read(Tensor WeightState::*tensor) const;
  void write(Tensor WeightState::*tensor, std::span<const float> values) const;
};

// Every dense tensor of the model in the fixed order in which all ranks hold, reduce and save them:
// embedding; per layer q, k, v, o, both norms, router; last norm; head.
std::vector<ParameterSpec> dense_parameters(const ModelConfig& config);

// w1, w2, w3 of one expert, in this order.
std::vector<ParameterSpec> expert_parameters(const ModelConfig& config, uint32_t layer,
                                             uint32_t expert);

ParameterPart whole(Parameter& parameter);
// The parts of w1, w2 and w3 that a range covers, in this order.
std::vector<ParameterPart> parts_of(OwnedRange& range, const ModelConfig& config);

// Fresh state: values are ones for a norm, otherwise normal(0, init_range); gradient and moments
// are zero. Element i depends only on (seed, name, i), so a parameter has the same bits on whatever
// ranks its parts are made.
void initialise(Parameter& parameter, uint64_t seed, double init_range);
void initialise(OwnedRange& range, const ModelConfig& config, uint64_t seed);

}  // namespace moetrain
