#include "trainer/calibrate/measured_model.h"

#include <algorithm>
#include <map>

namespace moetrain::calibrate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// A collective's wait for a peer (trainer/README.md): what tells of a lost rank without ckptd.
constexpr double kCollectiveTimeoutS = 60;

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
  // As few slots as hold every expert, and half as many again where experts have replicas.
  uint32_t slots = std::max(1U, shape.experts / measured.ranks);
  while (shape.experts % slots != 0) ++slots;
  model.static_slots = slots;
  const uint32_t more = (slots + 1) / 2;
  model.slots_per_rank = slots + more;
  model.replicas_min = 1;
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

}  // namespace

Result<MeasuredModel> measured_model(const Measured& measured) {
  const report::Report& run = measured.run;
  if (run.checkpoints.count == 0 || run.checkpoints.durable_ms_p50 <= 0 || run.failures.empty()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "calibrate: the run saved {} checkpoints and had {} failures: nothing to "
                      "learn from",
                      run.checkpoints.count, run.failures.size());
  }
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
  const double disk = static_cast<double>(run.checkpoints.bytes) /
                      static_cast<double>(run.checkpoints.count) /
                      (run.checkpoints.durable_ms_p50 / 1000);
  model.remote_write_bytes_per_s = disk;
  model.remote_read_bytes_per_s = disk;
  const report::Failure& failure = run.failures.front();
  const double detected_ms = failure.detected_ms.value_or(0);
  const double again_s = std::max(failure.resumed_ms - detected_ms, 0.0) / 1000;
  model.timeout_s = kCollectiveTimeoutS;
  model.restart_s = again_s;
  model.regroup_s = again_s;
  model.ours_detect_s = detected_ms / 1000;
  model.ours_regroup_s = again_s;
  CKPT_TRY(simulate::validate(model));

  const std::string loopback = "measured: loopback interface of this machine";
  const std::string resume = "measured: a lost rank started again, all of them restored";
  const Comments comments{
      {"dense_us_per_token", "measured: one rank"},
      {"expert_us_per_token", "measured: one rank, what the second expert of a token adds"},
      {"step_fixed_us", "in the above"},
      {"all_to_all_bytes_per_s", loopback},
      {"all_to_all_latency_us", loopback},
      {"all_to_all_overlap", "the trainer overlaps nothing"},
      {"all_reduce_bytes_per_s", loopback},
      {"all_reduce_overlap", "the trainer overlaps nothing"},
      {"transfer_bytes_per_s", "that of the all-to-all"},
      {"copy_bytes_per_s", "measured: copy with CRC32C"},
      {"copy_hidden", "a snapshot blocks for its copy"},
      {"peer_bytes_per_s", "that of the all-to-all"},
      {"remote_write_bytes_per_s", "measured: checkpoint bytes / time to durable, this disk"},
      {"remote_read_bytes_per_s", "not measured: as for writing"},
      {"timeout_s", "the bound of a collective"},
      {"restart_s", resume},
      {"regroup_s", "not measured: as for a restart"},
      {"plan_s", "not measured: nothing is planned"},
      {"ours_detect_s", "measured: until the supervisor knew"},
      {"ours_regroup_s", resume},
  };
  return MeasuredModel{model, in_order(comments)};
}

}  // namespace moetrain::calibrate
