#include <fmt/ranges.h>

#include "trainer/checkpoint/trainer_state.h"
#include "trainer/checkpoint/unit_ranges.h"
#include "trainer/cli/run_parts.h"
#include "trainer/placement/plan_files.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// The interval of Lazarus (arXiv 2407.04656).
constexpr uint64_t kReplanEvery = 200;
// Ranks that --domains may name. Far more than one machine runs; every rank gets all of them on its
// command line.
constexpr uint32_t kNamedMax = 4096;

Result<NodeOfProcess> parse_domains_file(const RunSpec& spec, const RunFacts& facts) {
  const std::string& file = spec.placement.domains_file;
  if (file.empty()) return NodeOfProcess();
  CKPT_ASSIGN(NodeOfProcess nodes, parse_nodes(facts.domains_csv, file, kNamedMax));
  if (!nodes.empty()) return nodes;
  return make_error(ErrorCode::kInvalidArgument, "--domains {}: has no line rank,node", file);
}

// A trainer unit with every field filled: a zero field of a table would take no space.
TrainerState fullest_state(const RankOptions& rank, const ComputePlacement& placement) {
  const ModelConfig& model = rank.config.model;
  const std::vector<int64_t> counts(size_t{model.layers} * model.experts);
  return {.progress = {.step = 1,
                       .applied = 1,
                       .skipped = 1,
                       .skipped_in_a_row = 1,
                       .tokens = 1,
                       .routed_tokens = counts,
                       .routed_last = counts,
                       .expert_updates = {}},
          .config = to_json(rank.config),
          .corpus_bytes = 1,
          .corpus_crc32c = 1,
          .placement = placement,
          .partial = {.snapshots = 1,
                      .k = 1,
                      .k_asked = 1,
                      .lost = {counts, counts},
                      .loss_k = 1,
                      .loss_tokens = 1},
          .stamps = std::vector<ExpertStamp>(2 * counts.size()),
          .pace = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, true},
          .load_window = rank.expert_state == ExpertState::kSharded
                             ? std::optional(LoadWindow(model.layers, model.experts, 1))
                             : std::nullopt};
}

}  // namespace

Status resolve_placement(const RunSpec& spec, const RunFacts& facts, RunOptions& options) {
  const RunSpec::Placement& asked = spec.placement;
  RankOptions& rank = options.rank;
  if (spec.experts_sharded()) rank.expert_state = ExpertState::kSharded;
  rank.schedule = {.prefetch = asked.prefetch, .delayed_reshard = asked.reshard == "delayed"};
  rank.trace_schedule = !spec.outputs.schedule_trace.empty();
  CKPT_ASSIGN(rank.placing.policy, parse_policy(asked.policy));
  rank.placing.slots = asked.slots;
  rank.placing.slots_max = asked.slots_max;
  rank.placing.replicas_min = asked.replicas_min;
  rank.check_replicas_every = asked.check_replicas_every;
  CKPT_ASSIGN(rank.nodes, parse_domains_file(spec, facts));
  const bool moves = rank.placing.policy != PolicyName::kStatic;
  // The compute time of a rank's experts, which --replan-if pays needs, is measured on the CPU
  // only.
  const bool by_itself = rank.elastic && moves && spec.device == "cpu";
  uint64_t replan_every = by_itself ? kReplanEvery : 0;
  if (spec.experts_sharded() && moves) replan_every = 1;
  rank.replan_every = asked.replan_every.value_or(replan_every);
  rank.replan_if_better = asked.replan_if == "better";
  return {};
}

std::string note_on_domains(const RunSpec& spec, const RunOptions& options) {
  const NodeOfProcess& nodes = options.rank.nodes;
  if (nodes.empty()) return {};
  uint32_t processes = options.rank.ranks;
  for (const RankJoin& join : options.joins) processes += join.count;
  std::vector<uint32_t> unnamed;
  for (uint32_t rank = 0; rank < processes; ++rank) {
    if (rank >= nodes.size() || nodes[rank] == kOwnNode) unnamed.push_back(rank);
  }
  if (unnamed.empty()) return {};
  const bool one = unnamed.size() == 1;
  return fmt::format("--domains {} names no node of rank{} {}: {} a node by itself",
                     spec.placement.domains_file, one ? "" : "s", fmt::join(unnamed, ", "),
                     one ? "it is" : "each is");
}

namespace {

// Every checkpoint has to hold the placement beside all counts.
Status check_room_for(const RankOptions& rank, const ComputePlacement& placement) {
  const auto encoded = encode(fullest_state(rank, placement));
  if (encoded.ok()) return {};
  return make_error(ErrorCode::kInvalidArgument, "--slots: {}", encoded.error().message);
}

// The plan of the first step of so many ranks.
Result<ComputePlacement> plan_sharded_ranks(const RankOptions& rank, uint32_t ranks) {
  return plan_first_step(rank.placing, rank.config.model, ranks,
                         routing_nodes(first_group(ranks, rank.nodes), rank.nodes));
}

// The largest group, with all ranks that join, has the most fragments and slots.
Status check_largest_sharded(const RunOptions& options) {
  const RankOptions& rank = options.rank;
  const ModelConfig& shape = rank.config.model;
  uint32_t joining = 0;
  for (const RankJoin& join : options.joins) joining += join.count;
  const uint32_t most = rank.ranks + joining;
  const Status fits =
      check_fragments(state_units(shape), Ownership::sharded(shape.layers, shape.experts, most));
  if (!fits.ok()) {
    return make_error(fits.error().code, "--ranks {}{}: {}", rank.ranks,
                      joining == 0 ? "" : fmt::format(" and {} that --join", joining),
                      fits.error().message);
  }
  CKPT_ASSIGN(const ComputePlacement placement, plan_sharded_ranks(rank, most));
  return check_room_for(rank, placement);
}

Result<ComputePlacement> plan_sharded(const RankOptions& rank) {
  Result<ComputePlacement> placement = plan_sharded_ranks(rank, rank.ranks);
  if (placement.ok()) return placement;
  return make_error(placement.error().code, "--slots {}: {}", rank.placing.slots,
                    placement.error().message);
}

Result<ComputePlacement> plan_first_placement(const RankOptions& rank,
                                              std::span<const int64_t> routed) {
  if (rank.expert_state == ExpertState::kSharded) return plan_sharded(rank);
  // `static` does not follow the load.
  if (rank.placing.policy == PolicyName::kStatic) routed = {};
  return plan_experts(rank.placing, rank.config.model, first_group(rank.ranks, rank.nodes), routed);
}

}  // namespace

Status plan_placement_of_run(RunOptions& options, std::span<const int64_t> routed) {
  RankOptions& rank = options.rank;
  CKPT_ASSIGN(const ComputePlacement placement, plan_first_placement(rank, routed));
  CKPT_TRY(check_room_for(rank, placement));
  if (rank.experts_sharded()) CKPT_TRY(check_largest_sharded(options));
  rank.placement = placement.slots;
  return {};
}

}  // namespace moetrain
