#include "trainer/rank/step_reporter.h"

#include <bit>
#include <utility>

namespace moetrain {

void StepReporter::resumed(std::vector<int64_t> versions) {
  resumed_at_ = static_cast<int64_t>(state_.progress.step);
  resumed_versions_ = std::move(versions);
}

void StepReporter::rolled_back(std::span<const uint32_t> experts,
                               std::span<const int64_t> versions) {
  rolled_back_.insert(rolled_back_.end(), experts.begin(), experts.end());
  rolled_back_to_.insert(rolled_back_to_.end(), versions.begin(), versions.end());
}

ExpertExchange StepReporter::exchange(const StepResult& result, const PlanWait& plan) const {
  Model& model = *state_.held.model;
  const CommunicationTime time = model.profile().communication();
  return {.token_bytes = result.traffic.tokens,
          .restore_bytes = result.traffic.weights,
          .reshard_bytes = result.traffic.gradients,
          .exposed_ms = static_cast<double>(time.exposed_ns) / 1e6,
          .hidden_ms = static_cast<double>(time.hidden_ns) / 1e6,
          .plan_waits = plan.waits,
          .plan_wait_ms = plan.ms,
          .memory_bytes = model.experts().memory_bytes(),
          .memory_bound = model.experts().memory_bound()};
}

void StepReporter::report(const StepResult& result, const StepTime& time,
                          const SnapshotStall& stall) {
  state_.last_loss = result.loss;
  const Progress& progress = state_.progress;
  StepEvent step{.loss_bits = std::bit_cast<uint32_t>(result.loss),
                 .applied = result.applied,
                 .ms = time.ms,
                 .waited_ms = time.waited_ms,
                 .stall_ms = stall.ms,
                 .room_ms = stall.waits.room_ms,
                 .slabs_ms = stall.waits.slabs_ms,
                 .snapshots_open = stall.waits.open,
                 .learning_rate = result.learning_rate,
                 .gradient_norm = result.gradient_norm,
                 .busiest_rows = result.load.busiest_rows,
                 .max_over_mean = result.load.max_over_mean(state_.held.placement.ranks),
                 .experts = exchange(result, time.plan),
                 .plt = state_.partial.plt(progress.routed_tokens),
                 .plt_rollback = state_.partial.meter().plt_rollback(progress.routed_tokens)};
  if (state_.options.report_routing) {
    step.routed = progress.routed_last;
    step.resumed_at = std::exchange(resumed_at_, -1);
    step.resumed_versions = std::exchange(resumed_versions_, {});
    step.rolled_back = std::exchange(rolled_back_, {});
    step.rolled_back_to = std::exchange(rolled_back_to_, {});
  }
  state_.events.write({.step = result.step}, std::move(step));
}

}  // namespace moetrain
