#include "trainer/rank/pace_driver.h"

#include <string>
#include <utility>
#include <vector>

#include "formats/base/counted.h"
#include "trainer/elastic/next_placement.h"

namespace moetrain {

void PaceDriver::begin_run() { state_.pacer.start(trained_); }

Pacer::ResumeCause PaceDriver::resume_cause() const {
  if (trained_) return Pacer::ResumeCause::kSurvived;
  switch (state_.options.resume) {
    case CKPT_RESUME_LATEST:
      return Pacer::ResumeCause::kResumed;
    case CKPT_RESUME_AT_STEP:
      return Pacer::ResumeCause::kChosen;
    default:
      return Pacer::ResumeCause::kRestarted;
  }
}

Status PaceDriver::resume(EpochComm& comm, const Restored& restored) {
  Pacer& pacer = state_.pacer;
  const FailureRecord known{state_.options.failures_known, state_.options.training_ms_known / 1e3};
  pacer.resume(restored.pace, resume_cause(), known, state_.progress.step);
  std::vector<int64_t> resume_counts = pacer.resume_counts();
  CKPT_TRY(comm.all_reduce_max(resume_counts));
  pacer.agree(resume_counts);
  const bool grown = restored.lost_tokens > 0 && state_.partial.k() > restored.k;
  if (grown) pacer.raise_k(state_.partial.k());
  // The run that saved the checkpoint may have had other flags than this one.
  follow_pacer();
  if (trained_) {
    const std::chrono::duration<double, std::milli> lost =
        std::chrono::steady_clock::now() - left_training_;
    pacer.recovered(lost.count());
  }
  return {};
}

void PaceDriver::membership_changed(const Change& change) {
  Pacer& pacer = state_.pacer;
  if (change.lost_experts) {
    const uint64_t now_ns = monotonic_ns();
    pacer.rolled_back(ms_between(change.lost_ns.value_or(now_ns), now_ns));
  }
  if (state_.partial.k() > change.k_before) pacer.raise_k(state_.partial.k());
  const bool all_were_written = change.k_before == state_.options.config.model.experts;
  if (change.lost_tokens > 0 && all_were_written && overspends() && pacer.overspent()) {
    state_.log_once(
        fmt::format("--plt-budget {} is overspent, and a rollback loses what came since"
                    " the last checkpoint even if that had all experts: one every {}"
                    " from now on",
                    state_.options.partial.plt_budget, ckpt::base::counted(pacer.every(), "step")));
  }
  follow_pacer();
}

bool PaceDriver::overspends() const {
  return state_.partial.plt(state_.progress.routed_tokens) > state_.options.partial.plt_budget;
}

Status PaceDriver::decide(EpochComm& comm) {
  Pacer& pacer = state_.pacer;
  if (pacer.is_halved() && !overspends()) {
    pacer.within_budget();
    state_.log_once(fmt::format("--plt-budget {} is kept again: a checkpoint every {}",
                                state_.options.partial.plt_budget,
                                ckpt::base::counted(pacer.every(), "step")));
    report_pace();
  }
  if (!pacer.decides_at(state_.progress.step)) return {};
  std::vector<int64_t> measured = pacer.measured();
  CKPT_TRY(comm.all_reduce_max(measured));
  const std::optional<std::string> changed = pacer.decide(state_.progress.step, measured);
  follow_pacer();
  if (changed) state_.log_once(*changed);
  report_pace();
  return {};
}

void PaceDriver::follow_pacer() {
  if (const auto k = state_.pacer.k()) state_.partial.set_k(*k);
  if (state_.options.partial.k_snapshot_auto) {
    // Before anything is measured, no more experts are copied than written.
    state_.partial.set_k_snapshot(state_.pacer.k_snapshot().value_or(0));
  }
}

void PaceDriver::report_pace() const {
  if (state_.seat.rank != 0) return;
  const Pacer& pacer = state_.pacer;
  const uint32_t asked = state_.options.partial.k;
  const bool beyond_asked = asked != 0 && state_.partial.k() > asked;
  const double budget = state_.options.partial.plt_budget;
  std::string reason = pacer.reason();
  if (beyond_asked) {
    reason = fmt::format("{} were asked for, --plt-budget {} wants more", asked, budget);
  }
  if (pacer.is_halved()) {
    reason += fmt::format("; more often than else, as --plt-budget {} is overspent", budget);
  }
  state_.events.write({.step = state_.progress.step}, PacingEvent{std::move(reason), in_force()});
}

CheckpointPace PaceDriver::in_force() const {
  return {.checkpoint_every = state_.pacer.every(),
          .experts_per_checkpoint = state_.partial.k(),
          .experts_per_snapshot = state_.partial.k_snapshot()};
}

void PaceDriver::fill_agreed(TrainingEvent& training) const {
  const PaceState pace = state_.pacer.state();
  const bool sharded = state_.options.expert_state == ExpertState::kSharded;
  training.effective_replicas =
      sharded ? 1 : effective_replicas(state_.held.placement, state_.seat.group);
  training.failures = pace.failures;
  training.training_ms = static_cast<double>(pace.seen_ns) / 1e6;
  training.pace = in_force();
}

}  // namespace moetrain
