#include "trainer/rank/replan_driver.h"

#include <utility>
#include <vector>

namespace moetrain {

namespace {

ReplanOptions replan_options(const RankOptions& options) {
  uint64_t elements = 0;
  for (const ParameterSpec& spec : expert_parameters(options.config.model, 0, 0)) {
    elements += spec.elements();
  }
  const bool moves = options.expert_state == ExpertState::kReplicated;
  return {.every = moves ? options.replan_every : 0,
          .steps = options.steps,
          .if_better = options.replan_if_better,
          .expert_bytes = 3 * elements * sizeof(float)};  // weights and both moments
}

ReplannedEvent describe(const RankState& state, const ReplanChoice& choice,
                        const ComputePlacement& next, const std::vector<int64_t>& window) {
  const ComputePlacement& placement = state.held.placement;
  const uint32_t layer = choice.before.worst_layer;
  const auto routed = window.begin() + ptrdiff_t{layer} * placement.experts;
  return {.moved = choice.moves,
          .balance_before = choice.before.max_over_mean,
          .balance_after = choice.after.max_over_mean,
          .gain_ms = choice.gain_ms,
          .cost_ms = choice.cost_ms,
          .relayout = {.bytes_moved = choice.bytes},
          .layer = layer,
          .slots_before = placement.slots[layer],
          .slots_after = next.slots[layer],
          .routed = {routed, routed + placement.experts}};
}

}  // namespace

ReplanDriver::ReplanDriver(RankState& state, StateMigrator& migrator)
    : state_(state), migrator_(migrator), replanner_(replan_options(state.options)) {}

void ReplanDriver::begin() {
  replanner_.begin(state_.progress.step, state_.progress.routed_tokens);
}

void ReplanDriver::computed(const ExpertWork& work) {
  replanner_.computed(work.rows, state_.held.device->is_host() ? work.cpu_ns : 0);
}

void ReplanDriver::migrated(const RecoveryReport& report) {
  if (!migrator_.live().lost().empty()) return;
  replanner_.moved(report.relayout.bytes_moved, report.relayout.migrate_ms);
}

// All ranks plan from the same numbers and come to the same placement. Only their measures differ,
// so these are added up over all ranks before anything follows from them.
Status ReplanDriver::replan_if_due(EpochComm& comm) {
  if (!due()) return {};
  const ComputePlacement& placement = state_.held.placement;
  const uint64_t begin_ns = monotonic_ns();
  const std::vector<int64_t> window = replanner_.window(state_.progress.routed_tokens);
  const Result<ComputePlacement> next =
      placement_planner(state_, {})(placement.ranks, window, held_by(placement));
  std::vector<int64_t> measured = replanner_.measured();
  CKPT_TRY(comm.all_reduce_sum(measured));
  if (!next.ok()) {
    state_.log_once("experts stay where they are: " + next.error().message);
    begin();
    return {};
  }
  const ReplanChoice choice =
      replanner_.decide(state_.progress.step, measured, placement, *next, window);
  ReplannedEvent replanned = describe(state_, choice, *next, window);
  const double plan_ms = ms_between(begin_ns, monotonic_ns());
  if (choice.moves) {
    CKPT_ASSIGN(replanned.relayout, move(comm, *next));
  }
  replanned.relayout.plan_ms = plan_ms;
  begin();
  if (state_.seat.rank == 0) state_.events.write(state_.here(), std::move(replanned));
  return {};
}

Result<Relayout> ReplanDriver::move(EpochComm& comm, const ComputePlacement& next) {
  migrator_.live().agree_unchanged(comm.size());
  const PlanPlacement planned = [&next](uint32_t, const auto&,
                                        const auto&) -> Result<ComputePlacement> { return next; };
  // Every expert has a live holder, so no lineage is needed to restore one.
  CKPT_ASSIGN(RecoveryReport report, migrator_.migrate(comm, planned, /*lineage=*/0));
  migrated(report);
  return std::move(report.relayout);
}

}  // namespace moetrain
