// Finds the tensors of a model file that belong to an expert, by the names of Mixtral, Qwen-MoE,
// DeepSeek-V3, GPT-OSS and Llama 4. Pure: a table and its lookup.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckptctl {

// A tensor of one expert, or of all experts of a layer.
struct ExpertTensor {
  std::string_view experts;  // the list of experts: "model.layers.3.mlp.experts"
  uint32_t layer = 0;
  // Nothing: the tensor is stacked, its first dimension counts the layer's experts.
  std::optional<uint32_t> expert;
  // Stacked tensors: true if the first dimension is the number of experts. Other stacked tensors,
  // such as scales and biases, may hold one value for all experts.
  bool counts_experts = false;
};

// Nothing: an unknown name, a shared expert, a router, a dense layer. Views point into `tensor`.
std::optional<ExpertTensor> expert_tensor(std::string_view tensor);

// Slice i of a stacked tensor along its first dimension, as a tensor of its expert's unit:
// "NAME[i]".
std::string slice_name(std::string_view tensor, uint64_t index);
struct SliceName {
  std::string_view tensor;
  uint64_t index = 0;
};
// Nothing: not a name made by slice_name.
std::optional<SliceName> parse_slice_name(std::string_view name);

}  // namespace ckptctl
