// Costs: the closed forms of a step. Seconds unless a name says otherwise; of one layer and one
// micro-batch unless a comment says otherwise.
//
//   experts      expert_fixed + tokens * 6 * hidden * ffn / expert_flops      forward, busiest rank
//   dense        tokens * (4 h (h + kv) + 2 h * sequence) / dense_flops       forward; the second
//                term is causal attention
//   all-to-all   latency + max(within_tokens * bytes / within_bandwidth,
//                              between_tokens * bytes / between_bandwidth)    dispatch or combine
//   restore      latency + max over nodes and their ranks of bytes from other owners / bandwidth,
//                where a rank restores its D distinct experts and the dense part: it owns 1/N, has
//                (n-1)/N from ranks of its node, (N-n)/N from other nodes
//   re-shard     the same bytes the other way, with gradient_bytes for weight_bytes
//
// forward  = dense + experts + 2 all-to-alls; backward is twice that compute and 2 all-to-alls, and
// with recompute a forward pass before it.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/placement/laer.h"
#include "trainer/simulate/sharded/dispatch.h"
#include "trainer/simulate/sharded/sharded_model.h"

namespace moetrain::simulate::sharded {

double expert_seconds(const ShardedModel& model, const Shape& shape, double tokens);
double dense_seconds(const ShardedModel& model, const Shape& shape, double tokens);
// Embedding, output layer and loss, forward; of a micro-batch, not of a layer.
double head_seconds(const ShardedModel& model, const Shape& shape, double tokens);
double all_to_all_seconds(const ShardedModel& model, const Shape& shape, const Dispatch& tokens);
// Parameters of a layer that are no experts': attention with grouped keys and values, the router.
double dense_parameters(const ShardedModel& model, const Shape& shape);
// Seconds of a step's update of all parameters, 1/N on each rank.
double optimizer_seconds(const ShardedModel& model, const Shape& shape);

// Bytes that a rank receives from other owners to restore `distinct` experts and the dense part.
double restore_bytes(const ShardedModel& model, const Shape& shape, double distinct);
// distinct[rank]: experts of the layer that the rank computes, each counted once.
double restore_seconds(const ShardedModel& model, const Shape& shape,
                       std::span<const uint32_t> distinct);
double reshard_seconds(const ShardedModel& model, const Shape& shape,
                       std::span<const uint32_t> distinct);

// When communication of experts runs.
struct Schedule {
  // 0: a layer's restore begins when the layer does, and nothing hides it. 1: with the attention
  // before it. 2: after the token all-to-all of the layer before it.
  uint32_t prefetch = 2;
  // The re-shard of a layer's gradients runs under the backward pass of the next one; else nothing
  // hides it.
  bool delayed_reshard = true;
};

// Seconds that a layer computes, and that compute cannot hide of its communication.
struct LayerTimes {
  double dense = 0;       // forward
  double experts = 0;     // forward, of the busiest rank
  double all_to_all = 0;  // one
  double restore = 0;
  double reshard = 0;
};
double exposed_forward(const LayerTimes& layer, const Schedule& schedule);
double exposed_backward(const LayerTimes& layer, const Schedule& schedule, double recompute);

// The planner's costs on this cluster: what a token takes on a link, over what an expert takes.
LaerCosts laer_costs(const ShardedModel& model, const Shape& shape);

}  // namespace moetrain::simulate::sharded
