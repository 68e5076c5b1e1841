#include "bench/service/gpu/train_work.h"

namespace bench::gpu {

double step_flops(const moetrain::ModelConfig& config, uint64_t tokens) {
  const double hidden = config.hidden;
  const double queries = static_cast<double>(config.heads) * config.head_dim;
  const double keys = static_cast<double>(config.kv_heads) * config.head_dim;
  const double attention = hidden * (2 * queries + 2 * keys);
  const double experts =
      config.top_k * static_cast<double>(moetrain::expert_parameter_count(config));
  const double router = hidden * config.experts;
  // Scores and their weighted sum of values: on average, a token attends to half of the sequence.
  const double seen = (config.seq_len + 1) / 2.0;
  const double scores = 2 * seen * queries;
  const double per_token =
      2 * (config.layers * (attention + experts + router + scores) + hidden * config.vocab);
  return 3 * per_token * static_cast<double>(tokens);
}

}  // namespace bench::gpu
