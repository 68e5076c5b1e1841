#include "trainer/cli/config_spec.h"

#include <fmt/ranges.h>

#include "trainer/model/presets.h"

namespace moetrain {

TrainConfig default_config() {
  TrainConfig config;
  config.model = *preset("tiny");
  // One micro-batch of many sequences: a run that started on few ranks can continue on more.
  config.micro_batches = 1;
  config.batch = 8;
  return config;
}

Result<TrainConfig> ConfigSpec::apply(TrainConfig base) const {
  if (preset) {
    const auto model = moetrain::preset(*preset);
    if (!model) {
      return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                              "--preset {}: there is none of this name; there are {}", *preset,
                              fmt::join(preset_names(), ", "));
    }
    base.model = *model;
  }
  const auto set = [](auto& field, const auto& given) {
    if (given) field = *given;
  };
  set(base.model.layers, layers);
  set(base.model.hidden, hidden);
  set(base.model.heads, heads);
  set(base.model.kv_heads, kv_heads);
  set(base.model.head_dim, head_dim);
  set(base.model.intermediate, intermediate);
  set(base.model.experts, experts);
  set(base.model.top_k, top_k);
  set(base.model.seq_len, seq_len);
  set(base.model.aux_coef, aux_coef);
  set(base.model.router_skew, router_skew);
  set(base.model.router_skew_order, router_skew_order);
  if (router_trace_crc32c && !base.model.follows_trace()) base.model.router_trace_hold = 1;
  set(base.model.router_trace_crc32c, router_trace_crc32c);
  set(base.model.router_trace_hold, router_trace_hold);
  set(base.micro_batches, micro_batches);
  set(base.batch, batch);
  set(base.seed, seed);
  set(base.schedule.learning_rate, learning_rate);
  set(base.schedule.warmup_steps, warmup_steps);
  set(base.schedule.total_steps, schedule_steps);
  set(base.adamw.weight_decay, weight_decay);
  set(base.adamw.clip_norm, clip_norm);
  if (idle_experts) {
    base.adamw.idle_experts = *idle_experts == "skip" ? IdleExperts::kSkip : IdleExperts::kUpdate;
  }
  if (precision) base.precision = *precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  return base;
}

}  // namespace moetrain
