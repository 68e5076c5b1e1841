#include "trainer/rank/step_placement.h"

#include "formats/base/assert.h"
#include "trainer/elastic/next_placement.h"
#include "trainer/parallel/planned_placement.h"

namespace moetrain {

Status StepPlacement::begin() {
  const RankOptions& options = state_.options;
  if (options.expert_state == ExpertState::kReplicated) {
    state_.load_window.reset();  // of a run that was saved with sharded experts
    return {};
  }
  const ModelConfig& shape = options.config.model;
  const RankGroup& group = state_.seat.group;
  const uint32_t ranks = group.ranks;
  const StepPlannerOptions planning{
      .plan = step_plan_options(placing_of_group(options.placing, shape, ranks), shape, ranks,
                                routing_nodes(group, options.nodes)),
      .replan_every = options.replan_every};
  // A run that was saved with replicated experts has no counts.
  if (!state_.load_window) {
    state_.load_window.emplace(shape.layers, shape.experts, state_.progress.step);
  }
  CKPT_ASSERT(state_.load_window->last_step() == state_.progress.step);
  CKPT_ASSIGN(planner_, StepPlanner::make(planning, *state_.load_window));
  return {};
}

Status StepPlacement::place() {
  if (!planner_) return {};
  const uint64_t step = state_.progress.step + 1;
  const StepPlannerTimes before = planner_->times();
  CKPT_ASSIGN(const ComputePlacement* const plan, planner_->take(step));
  const StepPlannerTimes& after = planner_->times();
  wait_ = {.waits = after.waits - before.waits,
           .ms = static_cast<double>(after.waited_ns - before.waited_ns) / 1e6};
  ExpertStore& experts = state_.held.model->experts();
  if (experts.placement() != *plan) CKPT_TRY(experts.set_placement(*plan));
  planner_->start(step + 1);
  return {};
}

void StepPlacement::step_done() {
  if (!planner_) return;
  planner_->record(state_.progress.routed_last);
  state_.load_window = planner_->window();
}

}  // namespace moetrain
