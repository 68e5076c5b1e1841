#include "trainer/model/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using nlohmann::json;

// Bounds that keep every product of sizes in this trainer inside 64 bits and every buffer
// allocatable; far above what a CPU trains.
constexpr uint32_t kExtentMax = 1u << 20;
constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kExpertsMax = 4096;

Status check_range(std::string_view field, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return {};
  return make_error(ErrorCode::kInvalidArgument, "model config: {} is {}, must be {} to {}", field,
                    value, least, most);
}

Status check_positive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return {};
  return make_error(ErrorCode::kInvalidArgument, "model config: {} is {}, must be positive", field,
                    value);
}

Status check_not_negative(std::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return {};
  return make_error(ErrorCode::kInvalidArgument, "model config: {} is {}, must be at least 0",
                    field, value);
}

Status refuse(std::string_view key, const json& found, std::string_view wanted) {
  return make_error(ErrorCode::kInvalidArgument, "config.json: {} is {}, this trainer needs {}",
                    key, found.dump(), wanted);
}

// The value of `key` into `out`; an absent or null key leaves the default there.
Status read_number(const json& object, const char* key, uint32_t& out) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_number_unsigned() || found->get<uint64_t>() > UINT32_MAX) {
    return refuse(key, *found, "a whole number");
  }
  out = found->get<uint32_t>();
  return {};
}

Status read_number(const json& object, const char* key, double& out) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_number()) return refuse(key, *found, "a number");
  out = found->get<double>();
  return {};
}

// An absent key is fine; a present one must have this value.
Status require(const json& object, const char* key, const json& wanted) {
  const auto found = object.find(key);
  if (found == object.end() || *found == wanted) return {};
  return refuse(key, *found, wanted.dump());
}

Status check_supported(const json& object) {
  const auto type = object.find("model_type");
  if (type == object.end() || *type != "mixtral") {
    return refuse("model_type", type == object.end() ? json() : *type, "\"mixtral\"");
  }
  CKPT_TRY(require(object, "hidden_act", "silu"));
  CKPT_TRY(require(object, "tie_word_embeddings", false));
  CKPT_TRY(require(object, "sliding_window", nullptr));
  CKPT_TRY(require(object, "rope_scaling", nullptr));
  double noise = 0;
  CKPT_TRY(read_number(object, "router_jitter_noise", noise));
  if (noise != 0) return refuse("router_jitter_noise", noise, "0");
  double dropout = 0;
  CKPT_TRY(read_number(object, "attention_dropout", dropout));
  if (dropout != 0) return refuse("attention_dropout", dropout, "0");
  return {};
}

Status read_rope(const json& object, ModelConfig& config) {
  CKPT_TRY(read_number(object, "rope_theta", config.rope_theta));
  const auto parameters = object.find("rope_parameters");
  if (parameters == object.end() || parameters->is_null()) return {};
  if (!parameters->is_object()) return refuse("rope_parameters", *parameters, "an object");
  CKPT_TRY(require(*parameters, "rope_type", "default"));
  return read_number(*parameters, "rope_theta", config.rope_theta);
}

}  // namespace

Status validate(const ModelConfig& config) {
  CKPT_TRY(check_range("vocab", config.vocab, 2, kExtentMax));
  CKPT_TRY(check_range("hidden", config.hidden, 1, kExtentMax));
  CKPT_TRY(check_range("layers", config.layers, 1, kLayersMax));
  CKPT_TRY(check_range("heads", config.heads, 1, kExtentMax));
  CKPT_TRY(check_range("kv_heads", config.kv_heads, 1, config.heads));
  CKPT_TRY(check_range("head_dim", config.head_dim, 2, kExtentMax));
  CKPT_TRY(check_range("intermediate", config.intermediate, 1, kExtentMax));
  CKPT_TRY(check_range("experts", config.experts, 1, kExpertsMax));
  CKPT_TRY(check_range("top_k", config.top_k, 1, config.experts));
  CKPT_TRY(check_range("seq_len", config.seq_len, 1, kExtentMax));
  CKPT_TRY(
      check_range("heads * head_dim", uint64_t{config.heads} * config.head_dim, 1, kExtentMax));
  if (config.heads % config.kv_heads != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "model config: kv_heads is {}, must divide heads, which is {}",
                      config.kv_heads, config.heads);
  }
  if (config.head_dim % 2 != 0) {
    return make_error(ErrorCode::kInvalidArgument, "model config: head_dim is {}, must be even",
                      config.head_dim);
  }
  CKPT_TRY(check_positive("rope_theta", config.rope_theta));
  CKPT_TRY(check_positive("rms_eps", config.rms_eps));
  CKPT_TRY(check_not_negative("aux_coef", config.aux_coef));
  CKPT_TRY(check_not_negative("router_skew", config.router_skew));
  return check_not_negative("init_range", config.init_range);
}

uint64_t expert_parameter_count(const ModelConfig& config) {
  return uint64_t{3} * config.hidden * config.intermediate;
}

uint64_t parameter_count(const ModelConfig& config) {
  const uint64_t hidden = config.hidden;
  const uint64_t attention =
      2 * hidden * config.head_dim * (uint64_t{config.heads} + config.kv_heads);
  const uint64_t per_layer = attention + 2 * hidden + hidden * config.experts +
                             config.experts * expert_parameter_count(config);
  return 2 * hidden * config.vocab + hidden + config.layers * per_layer;
}

std::string to_hugging_face_json(const ModelConfig& config) {
  json object = {
      {"architectures", {"MixtralForCausalLM"}},
      {"model_type", "mixtral"},
      {"vocab_size", config.vocab},
      {"hidden_size", config.hidden},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"intermediate_size", config.intermediate},
      {"num_local_experts", config.experts},
      {"num_experts_per_tok", config.top_k},
      {"max_position_embeddings", config.seq_len},
      {"rope_theta", config.rope_theta},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", config.rope_theta}}},
      {"rms_norm_eps", config.rms_eps},
      {"router_aux_loss_coef", config.aux_coef},
      {"initializer_range", config.init_range},
      {"router_jitter_noise", 0.0},
      {"attention_dropout", 0.0},
      {"hidden_act", "silu"},
      {"sliding_window", nullptr},
      {"tie_word_embeddings", false},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"torch_dtype", "float32"},
  };
  return object.dump(2) + "\n";
}

Result<ModelConfig> from_hugging_face_json(std::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "config.json: not a JSON object");
  }
  CKPT_TRY(check_supported(object));
  // The defaults of transformers' MixtralConfig, for keys a file leaves out.
  ModelConfig config{.vocab = 32000,
                     .hidden = 4096,
                     .layers = 32,
                     .heads = 32,
                     .kv_heads = 8,
                     .head_dim = 0,
                     .intermediate = 14336,
                     .experts = 8,
                     .top_k = 2,
                     .seq_len = 131072,
                     .aux_coef = 0.001};
  CKPT_TRY(read_number(object, "vocab_size", config.vocab));
  CKPT_TRY(read_number(object, "hidden_size", config.hidden));
  CKPT_TRY(read_number(object, "num_hidden_layers", config.layers));
  CKPT_TRY(read_number(object, "num_attention_heads", config.heads));
  CKPT_TRY(read_number(object, "num_key_value_heads", config.kv_heads));
  CKPT_TRY(read_number(object, "head_dim", config.head_dim));
  CKPT_TRY(read_number(object, "intermediate_size", config.intermediate));
  CKPT_TRY(read_number(object, "num_local_experts", config.experts));
  CKPT_TRY(read_number(object, "num_experts_per_tok", config.top_k));
  CKPT_TRY(read_number(object, "max_position_embeddings", config.seq_len));
  CKPT_TRY(read_rope(object, config));
  CKPT_TRY(read_number(object, "rms_norm_eps", config.rms_eps));
  CKPT_TRY(read_number(object, "router_aux_loss_coef", config.aux_coef));
  CKPT_TRY(read_number(object, "initializer_range", config.init_range));
  if (config.head_dim == 0 && config.heads != 0) config.head_dim = config.hidden / config.heads;
  CKPT_TRY(validate(config));
  return config;
}

}  // namespace moetrain
