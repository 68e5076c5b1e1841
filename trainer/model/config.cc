#include "trainer/model/config.h"

#include <cmath>

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

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
  if (config.router_skew > 0 && config.follows_trace()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "model config: router_skew is {}, must be 0 with a routing trace",
                      config.router_skew);
  }
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

}  // namespace moetrain
