// ModelConfig: the shape of a Mixtral model, and its Hugging Face config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

struct ModelConfig {
  uint32_t vocab = 256;    // tokens; bytes by default
  uint32_t hidden = 64;    // width of the residual stream
  uint32_t layers = 2;     // decoder layers, each attention + MoE
  uint32_t heads = 4;      // query heads
  uint32_t kv_heads = 2;   // key and value heads; divides heads
  uint32_t head_dim = 16;  // even (RoPE rotates pairs); heads * head_dim may differ from hidden
  uint32_t intermediate = 128;  // width inside an expert
  uint32_t experts = 8;         // per layer
  uint32_t top_k = 2;           // experts per token, 1 .. experts
  uint32_t seq_len = 64;        // tokens of a training sequence (max_position_embeddings)
  double rope_theta = 1e6;
  double rms_eps = 1e-5;
  double aux_coef = 0.02;    // weight of the auxiliary load-balancing loss
  double init_range = 0.02;  // standard deviation of freshly initialised matrices
  // Bench aids, unknown to Hugging Face: model/forced_routing.h. At most one of the two is used.
  double router_skew = 0;            // exponent of Zipf's law; 0: none
  uint32_t router_skew_order = 0;    // which experts are popular: another order for each number
  uint64_t router_trace_hold = 0;    // steps that a sample of the trace lasts; 0: no trace
  uint32_t router_trace_crc32c = 0;  // of the trace's text

  bool follows_trace() const { return router_trace_hold != 0; }
  bool operator==(const ModelConfig&) const = default;
};

// Checks every field and the relations between them. The error names the field and its value.
Status validate(const ModelConfig& config);

// Number of parameters of the whole model, and of one expert.
uint64_t parameter_count(const ModelConfig& config);
uint64_t expert_parameter_count(const ModelConfig& config);

// The config.json that MixtralForCausalLM.from_pretrained reads. Writes `rope_theta` and also
// `rope_parameters`, so that transformers 4 and 5 both find the base period.
std::string to_hugging_face_json(const ModelConfig& config);

// Reads a config.json (ours or of another Mixtral). Refuses what this trainer does not compute:
// another model_type or activation, tied embeddings, a sliding window, a scaled RoPE. Absent fields
// take the defaults of Hugging Face's MixtralConfig. The error names the key.
Result<ModelConfig> from_hugging_face_json(std::string_view json);

}  // namespace moetrain
