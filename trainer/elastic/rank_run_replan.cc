// The part of RankRun that places experts anew while the members stay.
#include "trainer/elastic/rank_run.h"

namespace moetrain {

using Kind = RankEvent::Kind;

namespace {

double ms_since_ns(uint64_t begin_ns) {
  return static_cast<double>(monotonic_ns() - begin_ns) / 1e6;
}

}  // namespace

ReplanOptions RankRun::replan_options() const {
  uint64_t elements = 0;
  for (const ParameterSpec& spec : expert_parameters(options_.config.model, 0, 0)) {
    elements += spec.elements();
  }
  return {.every = options_.replan_every,
          .steps = options_.steps,
          .if_better = options_.replan_if_better,
          .expert_bytes = 3 * elements * sizeof(float)};  // weights and both moments
}

// From the same numbers all ranks come to the same end; the only ones that differ, what each has
// measured, are added up before anything follows from them.
Status RankRun::replan(Comm& comm) {
  if (!replanner_->due(progress_.step)) return {};
  const uint64_t begin_ns = monotonic_ns();
  const std::vector<int64_t> window = replanner_->window(progress_.routed_tokens);
  const Result<ExpertPlacement> next = planner({})(placement_.ranks, window, held_by(placement_));
  std::vector<int64_t> measured = replanner_->measured();
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_sum(std::span(measured)));
  }
  if (!next.ok()) {
    if (rank_ == 0) events_.log(where() + ": experts stay where they are: " + next.error().message);
    replanner_->begin(progress_.step, progress_.routed_tokens);
    return {};
  }
  const ReplanChoice choice =
      replanner_->decide(progress_.step, measured, placement_, *next, window);
  const uint32_t layer = choice.before.worst_layer;
  const auto routed = window.begin() + ptrdiff_t{layer} * placement_.experts;
  RankEvent event{.kind = Kind::kReplanned,
                  .epoch = epoch_,
                  .step = progress_.step,
                  .bytes_moved = choice.bytes,
                  .moved = choice.moves,
                  .balance_before = choice.before.max_over_mean,
                  .balance_after = choice.after.max_over_mean,
                  .gain_ms = choice.gain_ms,
                  .cost_ms = choice.cost_ms,
                  .layer = layer,
                  .slots_before = placement_.slots[layer],
                  .slots_after = next->slots[layer],
                  .routed = {routed, routed + placement_.experts}};
  const double plan_ms = ms_since_ns(begin_ns);
  if (choice.moves) CKPT_TRY(move_experts(comm, *next, event));
  event.plan_ms = plan_ms;
  replanner_->begin(progress_.step, progress_.routed_tokens);
  if (rank_ == 0) events_.write(std::move(event));
  return {};
}

// As when members change: what a rank has is released when everybody has what it needs.
Status RankRun::move_experts(Comm& comm, const ExpertPlacement& next, RankEvent& event) {
  live_->stay(comm.size());
  const PlanPlacement planned = [&next](uint32_t, const auto&,
                                        const auto&) -> Result<ExpertPlacement> { return next; };
  return change_places(comm, planned, /*lineage=*/0, event);
}

}  // namespace moetrain
