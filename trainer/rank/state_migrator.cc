#include "trainer/rank/state_migrator.h"

#include <algorithm>
#include <string>

#include "formats/base/assert.h"
#include "formats/base/counted.h"
#include "trainer/elastic/next_placement.h"
#include "trainer/rank/version_agreement.h"
#include "trainer/report/render.h"

namespace moetrain {

using ckpt::make_error;

PlanPlacement placement_planner(const RankState& state, const std::vector<bool>& stays) {
  return [&state, stays](uint32_t ranks, const std::vector<int64_t>& routed,
                         const std::vector<std::vector<bool>>& held) -> Result<ComputePlacement> {
    const RankOptions& options = state.options;
    CKPT_ASSERT(ranks == state.seat.group.ranks);
    Result<ComputePlacement> next = next_placement(options.placing, options.config.model,
                                                   state.seat.group, stays, routed, held);
    if (next.ok()) return next;
    return make_error(next.error().code, "{}: {}", state.where(), next.error().message);
  };
}

StateMigrator::StateMigrator(RankState& state, FaultInjection& faults, StepReporter& reporter)
    : state_(state),
      faults_(faults),
      reporter_(reporter),
      live_(LiveState::Parts{*state.held.model, state.trainer, state.progress, state.partial,
                             state.pacer, state.held.stamps, state.held.placement, saved_step_,
                             state.last_loss, [&state] { state.settle_device(); }}) {}

Result<uint64_t> StateMigrator::agree(EpochComm& comm, uint64_t saved_step) {
  saved_step_ = saved_step;
  CKPT_TRY(comm.lend([this](Comm& group) { return live_.agree(group); }));
  return saved_step_;
}

Result<RecoveryReport> StateMigrator::migrate(EpochComm& comm, const PlanPlacement& planner,
                                              uint32_t lineage) {
  const uint64_t begin_ns = monotonic_ns();
  const uint32_t k_before = state_.partial.k();
  RecoveryReport report;
  faults_.enter_phase("plan");
  CKPT_TRY(comm.lend([&](Comm& group) { return live_.plan(group, planner); }));
  const uint64_t planned_ns = monotonic_ns();
  faults_.enter_phase("move");
  CKPT_TRY(comm.lend([this](Comm& group) { return live_.move(group); }));
  faults_.enter_phase("commit");
  CKPT_TRY(comm.lend([this](Comm& group) { return live_.commit(group); }));
  state_.held.remap();
  faults_.enter_phase("restore");
  CKPT_ASSIGN(const ExpertRestore restored, restore_lost(comm, lineage, report));
  faults_.enter_phase("settle");
  CKPT_ASSIGN(const LiveState::Settled settled,
              comm.lend([&](Comm& group) { return live_.settle(group, restored.in_memory); }));
  report.restored.lost_tokens = settled.lost_tokens;
  report.relayout.bytes_moved = settled.bytes_moved;
  report.take_losses(state_);
  report_rollback(settled, k_before, report);
  report.relayout.plan_ms = ms_between(begin_ns, planned_ns);
  report.relayout.migrate_ms = ms_between(planned_ns, monotonic_ns());
  return report;
}

Result<ExpertRestore> StateMigrator::restore_lost(EpochComm& comm, uint32_t lineage,
                                                  RecoveryReport& report) {
  HeldState& held = state_.held;
  ExpertRestore restored;
  if (!live_.lost_here().empty()) {
    CKPT_ASSIGN(restored,
                restore_experts(state_.member.session(), state_.options.run, lineage,
                                state_.progress.step, live_.lost_here(), held.units, *held.memory,
                                *held.model, state_.options.config.seed, held.stamps));
    held.model->parameters_changed();
    report.restored.bytes_memory = restored.bytes_memory;
    report.restored.bytes_disk = restored.bytes_disk;
    report.restored.stale_units = restored.stale_units;
    for (const std::string& note : restored.notes) state_.say(note);
  }
  if (!live_.lost().empty()) {
    CKPT_ASSIGN(const std::vector<uint32_t> restored_again,
                agree_on_versions(state_, comm, lineage, restored.versions));
    report.add_stale(restored_again);
  }
  return restored;
}

// Reports experts restored from older versions: to the log, the report and the metrics.
void StateMigrator::report_rollback(const LiveState::Settled& settled, uint32_t k_before,
                                    RecoveryReport& report) {
  const std::vector<uint32_t>& lost = live_.lost();
  reporter_.rolled_back(lost, settled.versions);
  const auto unsaved = static_cast<uint64_t>(std::ranges::count(settled.versions, int64_t{-1}));
  const uint64_t saved = lost.size() - unsaved;
  report.restored.experts_from_seed = unsaved;
  if (unsaved == 1) {
    state_.log_once(
        "1 expert was lost with all it had learned: no checkpoint has it, it"
        " begins again from the seed");
  } else if (unsaved > 1) {
    state_.log_once(
        fmt::format("{} experts were lost with all they had learned: no checkpoint has"
                    " them, they begin again from the seed",
                    unsaved));
  }
  if (saved > 0) {
    state_.log_once(fmt::format("{} lost and came back from ckptd",
                                ckpt::base::counted(saved, "expert was", "experts were")));
  }
  if (settled.lost_tokens == 0) return;
  state_.log_once(fmt::format(
      "{} tokens are lost, {}{}", settled.lost_tokens,
      report::lost_part_text(report.relayout.plt, report.relayout.plt_rollback, "all so far"),
      k_change_text(state_.partial, k_before)));
}

}  // namespace moetrain
