#include "trainer/rank/snapshot_planner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/trainer_state.h"

namespace moetrain {

SnapshotPlanner::SnapshotPlanner(RankState& state, PaceDriver& pace)
    : state_(state), pace_(pace), config_json_(to_json(state.options.config)) {}

Result<PlannedSnapshot> SnapshotPlanner::plan(uint32_t attempt, bool full) {
  PartialCheckpoint::Plan plan = choose_units(full);
  const ShareSummary bytes = bytes_by_rank(plan.fragments, state_.held.placement.ranks);
  uint64_t memory_bytes = 0;
  for (const uint32_t id : plan.memory_units) memory_bytes += state_.held.units[id].bytes;
  const uint64_t step = state_.progress.step;
  state_.pacer.taking(step, bytes.total_bytes, bytes.total_bytes - memory_bytes);
  CKPT_TRY(write_trainer_unit(full));
  PlannedSnapshot planned{.request = {.step = step, .attempt = attempt},
                          .taking = taking_event(plan, bytes, memory_bytes)};
  Snapshotter::Request& request = planned.request;
  request.units = std::move(plan.units);
  request.memory_units = std::move(plan.memory_units);
  request.fragments = std::move(plan.fragments);
  if (state_.options.partial.is_partial()) request.staleness_max = staleness_max();
  if (state_.seat.rank == 0) describe(request);
  return planned;
}

PartialCheckpoint::Plan SnapshotPlanner::choose_units(bool full) {
  Progress& progress = state_.progress;
  PartialCheckpoint& partial = state_.partial;
  const ComputePlacement& placement = state_.held.placement;
  const size_t experts = size_t{placement.layers()} * placement.experts;
  progress.routed_tokens.resize(experts);  // both are empty before the first step
  progress.expert_updates.resize(experts);
  partial.set_interval(state_.pacer.widest());
  const uint32_t k_before = partial.k();
  PartialCheckpoint::Plan plan = partial.next(
      progress.step, {progress.routed_tokens, progress.expert_updates}, full, state_.held.stamps);
  if (partial.k() == k_before) return plan;
  state_.log_once(
      fmt::format("{:.3f} % of all tokens are lost so far; by --plt-budget {}"
                  " experts of each layer from now on",
                  100 * partial.plt(progress.routed_tokens), partial.k()));
  pace_.report_pace();
  return plan;
}

Status SnapshotPlanner::write_trainer_unit(bool full) {
  TrainerState state{.progress = state_.progress,
                     .config = config_json_,
                     .corpus_bytes = state_.corpus.bytes(),
                     .corpus_crc32c = state_.corpus.crc32c(),
                     .placement = state_.held.placement,
                     .partial = state_.partial.state(),
                     .stamps = state_.held.stamps.list(),
                     .pace = state_.pacer.state(),
                     .load_window = state_.load_window};
  state.pace.ended = full;
  CKPT_ASSIGN(const std::vector<std::byte> unit, encode(state));
  std::copy(unit.begin(), unit.end(), state_.held.trainer_unit.begin());
  return {};
}

TakingEvent SnapshotPlanner::taking_event(const PartialCheckpoint::Plan& plan,
                                          const ShareSummary& bytes, uint64_t memory_bytes) const {
  TakingEvent taking{.bytes = bytes.total_bytes,
                     .bytes_kept = memory_bytes,
                     .rank_bytes_max = bytes.max_bytes,
                     .rank_bytes_mean = bytes.mean_bytes};
  if (state_.options.report_routing) {
    taking.experts = plan.experts;
    taking.memory_experts = plan.memory_experts;
  }
  return taking;
}

// In steps. Snapshots times the interval may overflow for very large settings; the bound must not
// wrap around to a few steps.
uint64_t SnapshotPlanner::staleness_max() const {
  uint64_t steps = 0;
  const bool overflows = __builtin_mul_overflow(uint64_t{state_.partial.staleness_max()},
                                                state_.pacer.widest(), &steps);
  return overflows ? UINT64_MAX : steps;
}

// Fills in the fields that `ckptctl log` shows of the commit.
void SnapshotPlanner::describe(Snapshotter::Request& request) const {
  const Progress& progress = state_.progress;
  const PartialCheckpoint& partial = state_.partial;
  request.metrics = {{"loss", state_.last_loss},
                     {"tokens", static_cast<double>(progress.tokens)},
                     {"plt", partial.plt(progress.routed_tokens)},
                     {"plt_rollback", partial.meter().plt_rollback(progress.routed_tokens)}};
  const size_t experts = progress.routed_tokens.size();
  if (experts > CKPT_EXPERT_TOKENS_MAX) return;  // a commit has no room for so many
  const uint32_t experts_of_layer = state_.held.placement.experts;
  request.expert_tokens.reserve(experts);
  for (uint32_t i = 0; i < experts; ++i) {
    request.expert_tokens.push_back({i / experts_of_layer, i % experts_of_layer,
                                     static_cast<uint64_t>(progress.routed_tokens[i])});
  }
  const std::vector<int64_t> lost = partial.lost();
  request.expert_lost.assign(lost.begin(), lost.end());
}

}  // namespace moetrain
