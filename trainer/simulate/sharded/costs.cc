#include "trainer/simulate/sharded/costs.h"

#include <algorithm>

namespace moetrain::simulate::sharded {

namespace {

double latency(const ShardedModel& model) { return model.latency_us / 1e6; }

// A layer's whole exchange of experts: `bytes` for each parameter.
double exchange_seconds(const ShardedModel& model, const Shape& shape,
                        std::span<const uint32_t> distinct, double bytes) {
  const double ranks = model.ranks();
  const auto per_node = static_cast<size_t>(model.ranks_per_node);
  double slowest = 0;
  for (size_t first = 0; first < distinct.size(); first += per_node) {
    double node = 0;  // bytes that the ranks of the node have, other than dense ones
    for (size_t rank = first; rank < first + per_node; ++rank) {
      const double whole =
          bytes * (distinct[rank] * shape.expert_parameters() + dense_parameters(model, shape));
      node += whole;
      slowest =
          std::max(slowest, whole * (model.ranks_per_node - 1) / ranks / model.within_bytes_per_s);
    }
    const double away = (ranks - model.ranks_per_node) / ranks;
    slowest = std::max(slowest, node * away / model.between_bytes_per_s);
  }
  return latency(model) + slowest;
}

}  // namespace

double expert_seconds(const ShardedModel& model, const Shape& shape, double tokens) {
  return model.expert_fixed_us / 1e6 +
         tokens * 2 * shape.expert_parameters() / model.expert_flops_per_s;
}

double dense_seconds(const ShardedModel& model, const Shape& shape, double tokens) {
  const double projections = 4 * shape.hidden * (shape.hidden + model.key_value_width);
  const double attention = 2 * shape.hidden * model.sequence_tokens;
  return tokens * (projections + attention) / model.dense_flops_per_s;
}

double head_seconds(const ShardedModel& model, const Shape& shape, double tokens) {
  return tokens * 2 * shape.hidden * model.vocabulary / model.dense_flops_per_s;
}

double all_to_all_seconds(const ShardedModel& model, const Shape& shape, const Dispatch& tokens) {
  const double bytes = shape.hidden * model.token_bytes;
  return latency(model) + std::max(tokens.within * bytes / model.within_bytes_per_s,
                                   tokens.between * bytes / model.between_bytes_per_s);
}

double dense_parameters(const ShardedModel& model, const Shape& shape) {
  return 2 * shape.hidden * (shape.hidden + model.key_value_width) + shape.hidden * shape.experts;
}

double optimizer_seconds(const ShardedModel& model, const Shape& shape) {
  const double layer = shape.experts * shape.expert_parameters() + dense_parameters(model, shape);
  const double all = shape.layers * layer + 2 * shape.hidden * model.vocabulary;
  return all / model.ranks() * model.optimizer_bytes_per_parameter / model.memory_bytes_per_s;
}

double restore_bytes(const ShardedModel& model, const Shape& shape, double distinct) {
  const double ranks = model.ranks();
  return model.weight_bytes * (ranks - 1) / ranks *
         (distinct * shape.expert_parameters() + dense_parameters(model, shape));
}

double restore_seconds(const ShardedModel& model, const Shape& shape,
                       std::span<const uint32_t> distinct) {
  return exchange_seconds(model, shape, distinct, model.weight_bytes);
}

double reshard_seconds(const ShardedModel& model, const Shape& shape,
                       std::span<const uint32_t> distinct) {
  return exchange_seconds(model, shape, distinct, model.gradient_bytes);
}

double exposed_forward(const LayerTimes& layer, const Schedule& schedule) {
  double window = 0;
  if (schedule.prefetch >= 1) window += layer.dense;
  if (schedule.prefetch >= 2) window += layer.experts;
  return std::max(layer.restore - window, 0.0);
}

double exposed_backward(const LayerTimes& layer, const Schedule& schedule, double recompute) {
  const double dense = (2 + recompute) * layer.dense;
  const double whole = dense + (2 + recompute) * layer.experts;
  double window = 0;
  if (schedule.prefetch == 1) window = dense;
  if (schedule.prefetch >= 2) window = whole;
  const double hidden = std::min(layer.restore, window);
  // The re-shard has what the restore leaves of the backward pass: they share the links.
  const double left = schedule.delayed_reshard ? whole - hidden : 0;
  return layer.restore - hidden + std::max(layer.reshard - left, 0.0);
}

LaerCosts laer_costs(const ShardedModel& model, const Shape& shape) {
  const double compute = 2 * shape.expert_parameters() / model.expert_flops_per_s;
  const double bytes = shape.hidden * model.token_bytes;
  return {.within_node = bytes / model.within_bytes_per_s / compute,
          .between_nodes = bytes * model.ranks_per_node / model.between_bytes_per_s / compute,
          .recompute = model.recompute};
}

}  // namespace moetrain::simulate::sharded
