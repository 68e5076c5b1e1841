#include "trainer/simulate/cost_model.h"

#include <algorithm>
#include <cmath>

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

using M = CostModel;
constexpr double kRate = 1e18;  // bytes or parameters: beyond any machine, exact sums of doubles
constexpr double kTime = 1e7;   // seconds, or microseconds: more than a trace may last
constexpr double kSteps = 1e9;

constexpr Parameter kParameters[] = {
    {"model", "layers", &M::layers, 1, 1024, true, false},
    {"model", "experts", &M::experts, 1, 4096, true, false},
    {"model", "top_k", &M::top_k, 1, 4096, true, false},
    {"model", "hidden", &M::hidden, 1, 1 << 20, true, false},
    {"model", "dense_parameters", &M::dense_parameters, 0, kRate, true, false},
    {"model", "expert_parameters", &M::expert_parameters, 1, kRate, true, false},
    {"model", "tokens_per_sample", &M::tokens_per_sample, 1, 1 << 24, true, false},
    {"model", "samples_per_rank", &M::samples_per_rank, 1e-6, 1 << 24, false, true},
    {"cluster", "ranks_per_node", &M::ranks_per_node, 1, 64, true, false},
    {"cluster", "slots_per_rank", &M::slots_per_rank, 1, 4096, true, false},
    {"cluster", "static_slots", &M::static_slots, 1, 4096, true, false},
    {"cluster", "group_ranks", &M::group_ranks, 0, 1 << 16, true, false},
    {"cluster", "replicas_min", &M::replicas_min, 1, 64, true, false},
    {"cluster", "bytes_per_parameter", &M::bytes_per_parameter, 1, 64, false, true},
    {"compute", "dense_us_per_token", &M::dense_us_per_token, 0, kTime, false, true},
    {"compute", "expert_us_per_token", &M::expert_us_per_token, 0, kTime, false, true},
    {"compute", "step_fixed_us", &M::step_fixed_us, 0, 1e12, false, true},
    {"network", "all_to_all_bytes_per_s", &M::all_to_all_bytes_per_s, 1, kRate, false, true},
    {"network", "all_to_all_latency_us", &M::all_to_all_latency_us, 0, kTime, false, true},
    {"network", "all_to_all_overlap", &M::all_to_all_overlap, 0, 1, false, true},
    {"network", "all_reduce_bytes_per_s", &M::all_reduce_bytes_per_s, 1, kRate, false, true},
    {"network", "all_reduce_overlap", &M::all_reduce_overlap, 0, 1, false, true},
    {"network", "transfer_bytes_per_s", &M::transfer_bytes_per_s, 1, kRate, false, true},
    {"checkpoint", "copy_bytes_per_s", &M::copy_bytes_per_s, 1, kRate, false, true},
    {"checkpoint", "copy_hidden", &M::copy_hidden, 0, 1, false, true},
    {"checkpoint", "peer_bytes_per_s", &M::peer_bytes_per_s, 1, kRate, false, true},
    {"checkpoint", "remote_write_bytes_per_s", &M::remote_write_bytes_per_s, 1, kRate, false, true},
    {"checkpoint", "remote_read_bytes_per_s", &M::remote_read_bytes_per_s, 1, kRate, false, true},
    {"checkpoint", "every_rank_reads", &M::every_rank_reads, 0, 1, true, false},
    {"recovery", "timeout_s", &M::timeout_s, 0, kTime, false, true},
    {"recovery", "restart_s", &M::restart_s, 0, kTime, false, true},
    {"recovery", "regroup_s", &M::regroup_s, 0, kTime, false, true},
    {"recovery", "plan_s", &M::plan_s, 0, kTime, false, true},
    {"recovery", "ours_detect_s", &M::ours_detect_s, 0, kTime, false, true},
    {"recovery", "ours_regroup_s", &M::ours_regroup_s, 0, kTime, false, true},
    {"recovery", "join_wait_s", &M::join_wait_s, 0, kTime, false, true},
    {"intervals", "ds_steps", &M::ds_steps, 1, kSteps, true, true},
    {"intervals", "ds_ft_steps", &M::ds_ft_steps, 1, kSteps, true, true},
    {"intervals", "gemini_steps", &M::gemini_steps, 1, kSteps, true, true},
    {"intervals", "moc_steps", &M::moc_steps, 1, kSteps, true, true},
    {"intervals", "lazarus_steps", &M::lazarus_steps, 1, kSteps, true, true},
    {"intervals", "ours_steps", &M::ours_steps, 1, kSteps, true, true},
    {"intervals", "replan_steps", &M::replan_steps, 1, kSteps, true, true},
    {"intervals", "experts_per_checkpoint", &M::experts_per_checkpoint, 1, 4096, true, true},
    {"load", "zipf", &M::zipf, 0, 8, false, true},
    {"load", "drift_steps", &M::drift_steps, 1, kSteps, true, true},
    {"load", "drift", &M::drift, 0, 64, false, true},
    {"load", "seed", &M::seed, 0, 1 << 30, true, false},
};

}  // namespace

std::span<const Parameter> parameters() { return kParameters; }

uint32_t ep_ranks(const CostModel& model) {
  return static_cast<uint32_t>(model.experts / model.static_slots);
}

Status validate(const CostModel& model) {
  const auto wrong = [](const std::string& what) {
    return make_error(ErrorCode::kInvalidArgument, "{}", what);
  };
  for (const Parameter& parameter : kParameters) {
    const double value = model.*parameter.field;
    if (std::isfinite(value) && value >= parameter.low && value <= parameter.high &&
        (!parameter.whole || value == std::floor(value))) {
      continue;
    }
    return wrong(fmt::format("{}.{} {}: must be {}{} to {}", parameter.section, parameter.key,
                             value, parameter.whole ? "a whole number, " : "", parameter.low,
                             parameter.high));
  }
  if (std::fmod(model.experts, model.static_slots) != 0) {
    return wrong(fmt::format("cluster.static_slots {}: must divide the {} experts",
                             model.static_slots, model.experts));
  }
  if (std::fmod(ep_ranks(model), model.ranks_per_node) != 0) {
    return wrong(
        fmt::format("{} ranks of an expert parallel group (experts / static_slots): must "
                    "be whole nodes of {}",
                    ep_ranks(model), model.ranks_per_node));
  }
  const double group = model.group_ranks;
  if (group > 0 && group * model.slots_per_rank < model.experts * model.replicas_min) {
    return wrong(fmt::format("cluster.group_ranks {}: {} slots hold {} experts not {} times", group,
                             group * model.slots_per_rank, model.experts, model.replicas_min));
  }
  if (model.top_k > model.experts || model.experts_per_checkpoint > model.experts) {
    return wrong(
        fmt::format("model.top_k {} and intervals.experts_per_checkpoint {}: at most {} "
                    "experts",
                    model.top_k, model.experts_per_checkpoint, model.experts));
  }
  return {};
}

Micros micros(double seconds) {
  const double most = static_cast<double>(kTraceMax);
  return static_cast<Micros>(std::llround(std::clamp(seconds * 1e6, 0.0, most)));
}

Micros step_time(const CostModel& model, const StepShape& shape,
                 std::span<const double> imbalance) {
  double sum = 0;
  for (const double one : imbalance) sum += one;
  sum *= model.layers / static_cast<double>(std::max<size_t>(imbalance.size(), 1));
  const double tokens = model.tokens_per_rank();
  const double assignments = tokens * model.top_k;
  const auto others = [](double of) { return of > 1 ? (of - 1) / of : 0; };

  constexpr double kValueBytes = 2;  // bf16
  const double sent = assignments * model.hidden * kValueBytes * others(shape.group);
  const double all_to_all = 4 * (model.layers * model.all_to_all_latency_us +
                                 sum * sent / model.all_to_all_bytes_per_s * 1e6);
  const double replicas = double{1} * shape.ranks * shape.slots / model.experts;
  const double gradients =
      2 * kValueBytes *
      (others(shape.ranks) * model.dense_parameters +
       others(replicas) * shape.slots * model.layers * model.expert_parameters);
  const double microseconds =
      tokens * model.dense_us_per_token + sum * assignments * model.expert_us_per_token +
      (1 - model.all_to_all_overlap) * all_to_all +
      (1 - model.all_reduce_overlap) * gradients / model.all_reduce_bytes_per_s * 1e6 +
      model.step_fixed_us;
  return std::max<Micros>(micros(microseconds / 1e6),
                          1);  // a step takes time, whatever the file says
}

}  // namespace moetrain::simulate
