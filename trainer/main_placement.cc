#include "trainer/main_placement.h"

#include "trainer/checkpoint/trainer_state.h"
#include "trainer/main.h"
#include "trainer/placement/plan_files.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// As Lazarus does (arXiv 2407.04656).
constexpr uint64_t kReplanEvery = 200;
// Far more than one machine runs; every rank is told all of it on its command line.
constexpr uint32_t kNamedMax = 4096;

}  // namespace

void PlacementFlags::add_to(CLI::App& command) {
  std::vector<std::string> names;
  for (const PolicyName each : kPolicies) names.emplace_back(policy_name(each));
  const char* group = "Placement";
  command
      .add_option("--placement", policy,
                  "Which ranks hold which experts; others than static replicate them, by how the "
                  "run routed so far")
      ->check(CLI::IsMember(names))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--slots", numbers.slots,
                  "Experts that a rank can hold of each layer; 0: static has as many as it needs, "
                  "others twice as many")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--slots-max", numbers.slots_max,
                  "What a rank has memory for, of each layer: a loss that leaves too few ranks for "
                  "every expert within it ends the run. At least --slots; 0: no limit")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--min-replicas", numbers.replicas_min,
          "Ranks (with --domains nodes) that hold each expert, at least; 0: lazarus and frontier 2 "
          "where that fits, others as it comes")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--domains", domains_file,
                  "CSV: rank,node; ranks of a node die together. Those that join have the numbers "
                  "that follow the first ones'; a rank that the file does not name is a node by "
                  "itself")
      ->group(group);
  command
      .add_option("--replan-every", replan_every,
                  "Steps after which the placement is planned anew from how the run routed since; "
                  "0: never. Default: 200 on the CPU with --on-loss continue and a placement "
                  "that is not static, else 0")
      ->group(group);
  command
      .add_option("--replan-if", replan_if,
                  "Move experts then if that pays, or whenever the balance gets better")
      ->check(CLI::IsMember({"pays", "better"}))
      ->capture_default_str()
      ->group(group);
}

Result<PlacementOptions> PlacementFlags::parse() const {
  PlacementOptions options = numbers;
  CKPT_ASSIGN(options.policy, parse_policy(policy));
  if (options.slots_max != 0 && options.slots_max < options.slots) {
    return make_error(ErrorCode::kInvalidArgument, "--slots-max {}: fewer than --slots {}",
                      options.slots_max, options.slots);
  }
  return options;
}

Result<NodeOfProcess> PlacementFlags::read_nodes() const {
  if (domains_file.empty()) return NodeOfProcess();
  const Result<std::string> csv = read_text(domains_file);
  if (!csv.ok()) return make_error(ErrorCode::kInvalidArgument, "{}", csv.error().message);
  CKPT_ASSIGN(NodeOfProcess nodes, parse_nodes(*csv, domains_file, kNamedMax));
  if (!nodes.empty()) return nodes;
  return make_error(ErrorCode::kInvalidArgument, "{}: has no line rank,node", domains_file);
}

Status PlacementFlags::apply_replan(RankOptions& rank) const {
  const bool moves = rank.placing.policy != PolicyName::kStatic;
  // What a rank's experts cost is measured on the CPU only.
  const bool measured = rank.device == "cpu";
  rank.replan_every = replan_every.value_or(rank.elastic && moves && measured ? kReplanEvery : 0);
  rank.replan_if_better = replan_if == "better";
  if (rank.replan_every == 0) return {};
  if (!moves) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--replan-every {}: --placement static never moves an expert; choose another",
                      rank.replan_every);
  }
  if (!measured && !rank.replan_if_better) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--replan-every {}: whether a move pays is known on the CPU only; with"
                      " --device {} only --replan-if better",
                      rank.replan_every, rank.device);
  }
  return {};
}

Result<std::vector<LayerSlots>> plan_for_run(const PlacementOptions& options,
                                             const TrainConfig& config, const RankGroup& group,
                                             std::span<const int64_t> routed) {
  CKPT_ASSIGN(const ExpertPlacement placement, plan_experts(options, config.model, group, routed));
  // Every checkpoint has to hold it, beside counts that are all there: zeros in the fields of a
  // table would take no room.
  const std::vector<int64_t> counts(size_t{config.model.layers} * config.model.experts);
  TrainerState state{.progress = {.step = 1,
                                  .applied = 1,
                                  .skipped = 1,
                                  .skipped_in_a_row = 1,
                                  .tokens = 1,
                                  .routed_tokens = counts,
                                  .routed_last = counts,
                                  .expert_updates = {}},
                     .config = to_json(config),
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
                     .pace = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, true}};
  const auto encoded = encode(state);
  if (!encoded.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "--slots: {}", encoded.error().message);
  }
  return placement.slots;
}

}  // namespace moetrain
