#include "trainer/calibrate/measured_model.h"

#include <algorithm>
#include <map>

namespace moetrain::calibrate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Timeout after which an otherwise undetected rank counts as lost. A setting, not a measurement:
// the value of the shipped models.
constexpr double kTimeoutS = 15;

void set_shape(const Measured& measured, simulate::CostModel& model) {
  const ModelConfig& shape = measured.config.model;
  const auto experts = static_cast<double>(expert_parameter_count(shape));
  model.layers = shape.layers;
  model.experts = shape.experts;
  model.top_k = shape.top_k;
  model.hidden = shape.hidden;
  model.expert_parameters = experts;
  model.dense_parameters =
      static_cast<double>(parameter_count(shape)) - experts * shape.layers * shape.experts;
  model.tokens_per_sample = shape.seq_len;
  model.samples_per_rank =
      static_cast<double>(measured.config.sequences_per_step()) / measured.ranks;
  // The fewest slots that hold every expert.
  uint32_t once = std::max(1U, shape.experts / measured.ranks);
  while (shape.experts % once != 0) ++once;
  model.static_slots = once;
  model.slots_per_rank = slots(shape, measured.ranks);
  model.replicas_min = kReplicas;
  model.bytes_per_parameter = 12;
}

void set_intervals(const Measured& measured, simulate::CostModel& model) {
  model.ds_steps = 50;
  model.ds_ft_steps = 250;
  model.gemini_steps = 1;
  model.moc_steps = 10;
  model.lazarus_steps = 250;
  model.ours_steps = 5;
  model.replan_steps = 200;
  model.experts_per_checkpoint = std::max(measured.config.model.experts / 4, 1U);
  model.zipf = 1;
  model.drift_steps = 1000;
  model.drift = 0.1;
  model.seed = 1;
}

using Comments = std::map<std::string_view, std::string>;

std::vector<std::string> in_order(const Comments& comments) {
  std::vector<std::string> all;
  for (const simulate::Parameter& parameter : simulate::parameters()) {
    const auto found = comments.find(parameter.key);
    if (found != comments.end()) {
      all.push_back(found->second);
    } else {
      const bool shape = parameter.section == "model" || parameter.section == "cluster";
      all.emplace_back(shape ? "" : "assumed");
    }
  }
  return all;
}

Status check(const Measured& measured) {
  const report::Report& saved = measured.restarted;
  const auto& lost = measured.continued.failures;
  if (!saved.failures.empty() && !saved.failures.front().resumed_ms) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "calibrate: the run that resumes never trained again after its failure: "
                      "nothing to learn from");
  }
  if (saved.checkpoints.count == 0 || saved.checkpoints.durable_ms_p50 <= 0 ||
      saved.failures.empty() || !saved.failures.front().detected_ms) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "calibrate: the run that resumes saved {} checkpoints and had {} failures: "
                      "nothing to learn from",
                      saved.checkpoints.count, saved.failures.size());
  }
  if (!lost.empty() && lost.front().group != 0 && lost.front().detected_ms) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "calibrate: survivors continued after none of {} failures: nothing to measure",
                    lost.size());
}

void set_recovery(const Measured& measured, simulate::CostModel& model) {
  const report::Failure& restarted = measured.restarted.failures.front();
  const report::Failure::Split& split = measured.continued.failures.front().split_ms;
  model.timeout_s = kTimeoutS;
  model.restart_s = std::max(*restarted.resumed_ms - *restarted.detected_ms, 0.0) / 1000;
  model.ours_detect_s = split.detect / 1000;
  model.ours_regroup_s = split.regroup / 1000;
  model.regroup_s = model.ours_regroup_s;
  model.plan_s = split.plan / 1000;
}

Comments comments() {
  const std::string loopback = "measured: loopback interface of this machine";
  const std::string others_continue = "measured: a rank killed, the others continue, ";
  return {
      {"static_slots", "derived: as few as hold every expert"},
      {"slots_per_rank", "assumed: each expert twice, even without one rank"},
      {"replicas_min", "assumed: as in the run that was measured"},
      {"dense_us_per_token", "measured: one rank"},
      {"expert_us_per_token", "measured: one rank, what the second expert of a token adds"},
      {"step_fixed_us", "in the above"},
      {"all_to_all_bytes_per_s", loopback},
      {"all_to_all_latency_us", loopback},
      {"all_to_all_overlap", "the trainer overlaps nothing"},
      {"all_reduce_bytes_per_s", loopback},
      {"all_reduce_overlap", "the trainer overlaps nothing"},
      {"transfer_bytes_per_s", "assumed: that of the all-to-all"},
      {"copy_bytes_per_s", "measured: copy with CRC32C"},
      {"copy_hidden", "a snapshot blocks for its copy"},
      {"peer_bytes_per_s", "assumed: that of the all-to-all"},
      {"remote_write_bytes_per_s", "measured: checkpoint bytes / time to durable, this disk"},
      {"remote_read_bytes_per_s", "assumed: as for writing"},
      {"every_rank_reads", "assumed: one disk, whose pages are cached"},
      {"timeout_s",
       "assumed: NCCL times out after 10 to 20 s (Lazarus, arXiv:2407.04656); moetrain run"
       " has --collective-timeout-ms"},
      {"restart_s", "measured: a killed rank's process started again, and all have restored"},
      {"regroup_s", "assumed: as ours, it is the same work"},
      {"plan_s", others_continue + "then until they have planned who holds what"},
      {"ours_detect_s", others_continue + "until all of them know"},
      {"ours_regroup_s", others_continue + "then until all are connected again"},
      {"join_wait_s", "assumed"},
  };
}

}  // namespace

uint32_t slots(const ModelConfig& shape, uint32_t ranks) {
  const uint32_t left = ranks - 1;
  return std::min((kReplicas * shape.experts + left - 1) / left, shape.experts);
}

Result<MeasuredModel> measured_model(const Measured& measured) {
  CKPT_TRY(check(measured));
  simulate::CostModel model{};
  set_shape(measured, model);
  set_intervals(measured, model);
  model.dense_us_per_token = measured.compute.dense_us_per_token;
  model.expert_us_per_token = measured.compute.expert_us_per_token;
  model.all_to_all_bytes_per_s = measured.network.all_to_all_bytes_per_s;
  model.all_to_all_latency_us = measured.network.all_to_all_latency_us;
  model.all_reduce_bytes_per_s = measured.network.all_reduce_bytes_per_s;
  model.transfer_bytes_per_s = measured.network.all_to_all_bytes_per_s;
  model.peer_bytes_per_s = measured.network.all_to_all_bytes_per_s;
  model.copy_bytes_per_s = measured.copy_bytes_per_s;
  const auto& checkpoints = measured.restarted.checkpoints;
  const double disk = static_cast<double>(checkpoints.bytes) /
                      static_cast<double>(checkpoints.count) / (checkpoints.durable_ms_p50 / 1000);
  model.remote_write_bytes_per_s = disk;
  model.remote_read_bytes_per_s = disk;
  set_recovery(measured, model);
  CKPT_TRY(simulate::validate(model));
  return MeasuredModel{model, in_order(comments())};
}

}  // namespace moetrain::calibrate
