// ConfigSpec: the flags of `moetrain run` that change a TrainConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/train_config.h"

namespace moetrain {

// The configuration of a new run without any such flag: the preset `tiny`.
TrainConfig default_config();

// A flag that is not given changes nothing. So the same flags serve a new run, on top of defaults,
// and a resumed one, on top of the configuration it was trained with.
struct ConfigSpec {
  std::optional<std::string> preset;
  std::optional<uint32_t> router_skew_order, router_trace_crc32c;
  std::optional<uint32_t> layers, hidden, heads, kv_heads, head_dim, intermediate, experts, top_k,
      seq_len, micro_batches, batch;
  std::optional<uint64_t> seed, warmup_steps, schedule_steps, router_trace_hold;
  std::optional<double> learning_rate, weight_decay, clip_norm, aux_coef, router_skew;
  std::optional<std::string> idle_experts, precision;

  // kInvalidArgument: there is no such preset.
  Result<TrainConfig> apply(TrainConfig base) const;
};

}  // namespace moetrain
