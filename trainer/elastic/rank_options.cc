#include "trainer/elastic/rank_options.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "formats/base/json_dump.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using nlohmann::json;

namespace {

template <typename Options, typename Visit>
void visit_options(Options& options, Visit&& visit) {
  visit("data", options.data);
  visit("router_trace", options.router_trace);
  visit("run", options.run);
  visit("socket", options.socket);
  visit("job", options.job);
  visit("rank", options.rank);
  visit("ranks", options.ranks);
  visit("device", options.device);
  visit("gpu", options.gpu);
  visit("pin", options.pin);
  visit("steps", options.steps);
  visit("checkpoint_every", options.checkpoint_every);
  visit("checkpoint_auto", options.checkpoint_auto);
  visit("checkpoint_turns", options.checkpoint_turns);
  visit("skip_when_out_of_slabs", options.skip_when_out_of_slabs);
  visit("wait_durable", options.wait_durable);
  visit("experts_per_checkpoint", options.partial.k);
  visit("experts_per_snapshot", options.partial.k_snapshot);
  visit("experts_per_snapshot_auto", options.partial.k_snapshot_auto);
  visit("experts_auto", options.partial.k_auto);
  visit("selector", options.partial.selector);
  visit("partial_parts", options.partial.parts);
  visit("staleness_max", options.partial.staleness_max);
  visit("plt_budget", options.partial.plt_budget);
  visit("dense_sharding", options.partial.dense);
  visit("survivors_go_on", options.partial.survivors_continue);
  visit("expert_state", options.expert_state);
  visit("prefetch", options.schedule.prefetch);
  visit("delayed_reshard", options.schedule.delayed_reshard);
  visit("trace_schedule", options.trace_schedule);
  visit("placement", options.placement);
  visit("placement_policy", options.placing.policy);
  visit("slots", options.placing.slots);
  visit("slots_max", options.placing.slots_max);
  visit("replicas_min", options.placing.replicas_min);
  visit("nodes", options.nodes);
  visit("check_replicas_every", options.check_replicas_every);
  visit("replan_every", options.replan_every);
  visit("replan_if_better", options.replan_if_better);
  visit("elastic", options.elastic);
  visit("grace_ms", options.grace_ms);
  visit("kill_in", options.kill_in);
  visit("tell_routing", options.report_routing);
  visit("resume", options.resume);
  visit("resume_step", options.resume_step);
  visit("resume_lineage", options.resume_lineage);
  visit("kill_at", options.kill_at);
  visit("leave_after", options.leave_after);
  visit("failures_known", options.failures_known);
  visit("training_ms_known", options.training_ms_known);
  visit("heartbeat_ms", options.heartbeat_ms);
  visit("open_timeout_ms", options.open_timeout_ms);
  visit("collective_timeout_ms", options.collective_timeout_ms);
  visit("join_timeout_ms", options.join_timeout_ms);
  visit("save_timeout_ms", options.save_timeout_ms);
}

// JSON is UTF-8, paths are bytes: '%' and every byte beyond ASCII become %XX, and are decoded
// again.
std::string percent_encoded(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x80 && c != '%' ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}
std::string percent_decoded(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const char* digits = text.data() + at + 1;
    const bool escape = text[at] == '%' && at + 2 < text.size() &&
                        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += escape ? static_cast<char>(byte) : text[at];
    if (escape) at += 2;
  }
  return out;
}
void recode_paths(RankOptions& options, std::string (*recode)(const std::string&)) {
  options.socket = recode(options.socket);
  options.router_trace = recode(options.router_trace);
  for (std::string& path : options.data) path = recode(path);
}

// Enumerations are numbers in JSON.
Status check_enums(const RankOptions& options) {
  const PartialOptions& partial = options.partial;
  if (options.placing.policy <= PolicyName::kFrontier && partial.selector <= Selector::kRiskAware &&
      partial.parts <= PartialParts::kBoth && partial.dense <= DenseSharding::kBytes &&
      options.expert_state <= ExpertState::kSharded) {
    return {};
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      "rank options: no such selector, part, sharding, placement policy or expert state");
}

}  // namespace

Result<ComputePlacement> first_placement(const RankOptions& options) {
  const ModelConfig& shape = options.config.model;
  if (options.placement.empty()) {
    return static_placement(shape.layers, shape.experts, options.ranks);
  }
  if (options.placement.size() != shape.layers) {
    return make_error(ErrorCode::kInvalidArgument, "placement: of {} layers, the model has {}",
                      options.placement.size(), shape.layers);
  }
  return make_placement(options.placement, shape.experts, options.ranks);
}

std::string to_json(const RankOptions& options) {
  json out = {{"config", json::parse(to_json(options.config))}};
  RankOptions encoded = options;
  recode_paths(encoded, percent_encoded);
  visit_options(encoded, [&](const char* name, const auto& field) { out[name] = field; });
  return ckpt::base::dump_json(out);
}

Result<RankOptions> parse_rank_options(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("config")) {
    return make_error(ErrorCode::kInvalidArgument, "rank options: not a JSON object with a config");
  }
  RankOptions options;
  CKPT_ASSIGN(options.config, parse_train_config(document["config"].dump(), "rank options"));
  try {
    visit_options(options, [&](const char* name, auto& field) { document.at(name).get_to(field); });
  } catch (const json::exception& error) {
    return make_error(ErrorCode::kInvalidArgument, "rank options: {}", error.what());
  }
  recode_paths(options, percent_decoded);
  CKPT_TRY(check_enums(options));
  const bool rank_in_group = options.rank < options.ranks || options.elastic;
  if (options.ranks == 0 || !rank_in_group || options.resume > CKPT_RESUME_CONTINUE) {
    return make_error(ErrorCode::kInvalidArgument, "rank options: rank {} of {}, resume mode {}",
                      options.rank, options.ranks, options.resume);
  }
  if (options.schedule.prefetch > kPrefetchMax) {
    return make_error(ErrorCode::kInvalidArgument, "rank options: {} layers prefetched, at most {}",
                      options.schedule.prefetch, kPrefetchMax);
  }
  if (options.partial.k_snapshot_auto && options.partial.k_snapshot != kAllExperts) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rank options: {} experts in a snapshot, and automatic",
                      options.partial.k_snapshot);
  }
  if (options.partial.k_auto && options.partial.k != 0) {
    return make_error(ErrorCode::kInvalidArgument, "rank options: {} experts, and automatic",
                      options.partial.k);
  }
  return options;
}

}  // namespace moetrain
