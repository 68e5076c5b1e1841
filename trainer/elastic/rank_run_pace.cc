// The part of RankRun that says how often checkpoints are taken and what the ranks agree on for it.
#include <algorithm>

#include "formats/base/counted.h"
#include "trainer/elastic/rank_run.h"

namespace moetrain {

using Kind = RankEvent::Kind;

namespace {

// A GPU copies beside the arithmetic, so that a copy may take as long as the step; on the host it
// stops the step (AutoLimits).
constexpr double kCopyPartMaxBeside = 1;

}  // namespace

PaceOptions RankRun::pace_options() const {
  const PartialOptions& partial = options_.partial;
  const uint32_t experts = options_.config.model.experts;
  PaceOptions pace{.auto_every = options_.checkpoint_auto,
                   .auto_experts = partial.k_auto,
                   .memory = partial.k_snapshot != 0,
                   .every = options_.checkpoint_every,
                   .turns = options_.checkpoint_turns,
                   .k = partial.k,
                   .experts = experts};
  if (partial.staleness_max != 0) {
    const uint32_t least = (experts + partial.staleness_max - 1) / partial.staleness_max;
    pace.k_least = std::clamp(least, 1u, experts);
  }
  if (!partial.k_snapshot_auto) pace.k_snapshot = std::min(partial.k_snapshot, experts);
  uint64_t chosen_bytes = 0;
  for (const StateUnit& unit : units_) {
    if (partial_->is_chosen_about(unit)) chosen_bytes += unit.bytes;
  }
  pace.expert_bytes = chosen_bytes / experts;
  pace.dense_bytes = total_bytes(units_) - pace.expert_bytes * experts;
  if (!device_->is_host()) pace.limits.copy_part_max = kCopyPartMaxBeside;
  return pace;
}

Pacer::Came RankRun::came() const {
  if (trained_) return Pacer::Came::kSurvived;
  switch (options_.resume) {
    case CKPT_RESUME_LATEST:
      return Pacer::Came::kResumed;
    case CKPT_RESUME_AT_STEP:
      return Pacer::Came::kChosen;
    default:
      return Pacer::Came::kRestarted;
  }
}

// What one rank remembers of failures, all have to reckon with.
Status RankRun::settle_pace(Comm& comm, const RankEvent& event) {
  const FailureRecord known{options_.failures_known, options_.training_ms_known / 1e3};
  pacer_->resume(saved_pace_, came(), known, progress_.step);
  std::vector<int64_t> believed = pacer_->believed();
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_max(std::span(believed)));
  }
  pacer_->agree(believed);
  const bool grown = event.lost_tokens > 0 && partial_->k() > saved_partial_.k;
  if (grown) pacer_->raise_k(partial_->k());
  // What was in force was saved by a run that may have chosen otherwise than this one is to.
  follow_pacer();
  if (trained_) {
    const std::chrono::duration<double, std::milli> lost =
        std::chrono::steady_clock::now() - left_training_;
    pacer_->recovered(lost.count());
  }
  return {};
}

// In an epoch that goes on all have the pace of one member (LiveState::agree). What follows from
// what the change has lost all know, and come to the same without asking.
void RankRun::pace_of_change(uint32_t k_before, int64_t lost_tokens) {
  if (!live_->lost().empty()) {
    const uint64_t now_ns = monotonic_ns();
    pacer_->rolled_back(ms_between(lost_ns_.value_or(now_ns), now_ns));
  }
  if (partial_->k() > k_before) pacer_->raise_k(partial_->k());
  const bool all_were_written = k_before == options_.config.model.experts;
  if (lost_tokens > 0 && all_were_written && overspends() && pacer_->overspent() && rank_ == 0) {
    events_.log(fmt::format(
        "{}: --plt-budget {} is overspent, and a rollback loses what came since"
        " the last checkpoint even if that had all experts: one every {}"
        " from now on",
        where(), options_.partial.plt_budget, ckpt::base::counted(pacer_->every(), "step")));
  }
  follow_pacer();
}

std::string RankRun::k_change_text(uint32_t k_before) const {
  const uint32_t k = partial_->k();
  if (k == k_before) return {};
  return fmt::format("; {} of each layer from now on, {} before", ckpt::base::counted(k, "expert"),
                     k_before);
}

bool RankRun::overspends() const {
  return partial_->plt(progress_.routed_tokens) > options_.partial.plt_budget;
}

// As an epoch begins: every rank tells it, so that whoever reads the events sees that they agree.
void RankRun::tell_agreed(RankEvent& event) const {
  event.effective_replicas = effective_replicas(placement_, group_);
  event.failures = pacer_->state().failures;
  event.training_ms = static_cast<double>(pacer_->state().seen_ns) / 1e6;
  event.checkpoint_every = pacer_->every();
  event.experts_per_checkpoint = partial_->k();
  event.experts_per_snapshot = partial_->k_snapshot();
}

Status RankRun::pace(Comm& comm) {
  if (pacer_->is_halved() && !overspends()) {
    pacer_->within_budget();
    if (rank_ == 0) {
      events_.log(fmt::format("{}: --plt-budget {} is kept again: a checkpoint every {}", where(),
                              options_.partial.plt_budget,
                              ckpt::base::counted(pacer_->every(), "step")));
    }
    tell_pace();
  }
  if (!pacer_->decides_at(progress_.step)) return {};
  std::vector<int64_t> measured = pacer_->measured();
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_max(std::span(measured)));
  }
  const std::optional<std::string> changed = pacer_->decide(progress_.step, measured);
  follow_pacer();
  if (changed && rank_ == 0) events_.log(where() + ": " + *changed);
  tell_pace();
  return {};
}

void RankRun::follow_pacer() {
  if (const auto k = pacer_->k()) partial_->set_k(*k);
  if (options_.partial.k_snapshot_auto) {
    partial_->set_k_snapshot(pacer_->k_snapshot().value_or(0));  // nothing is measured: none
  }
}

void RankRun::tell_pace() {
  if (rank_ != 0) return;
  const uint32_t asked = options_.partial.k;
  const bool beyond_asked = asked != 0 && partial_->k() > asked;
  const double budget = options_.partial.plt_budget;
  std::string reason = pacer_->reason();
  if (beyond_asked) {
    reason = fmt::format("{} were asked for, --plt-budget {} wants more", asked, budget);
  }
  if (pacer_->is_halved()) {
    reason += fmt::format("; more often than else, as --plt-budget {} is overspent", budget);
  }
  events_.write({.kind = Kind::kPacing,
                 .step = progress_.step,
                 .text = std::move(reason),
                 .checkpoint_every = pacer_->every(),
                 .experts_per_checkpoint = partial_->k(),
                 .experts_per_snapshot = partial_->k_snapshot()});
}

Status RankRun::check_step_routing(std::span<const int64_t> routed) const {
  const ModelConfig& shape = options_.config.model;
  const auto assignments = static_cast<int64_t>(options_.config.tokens_per_step() * shape.top_k);
  const Status adds_up = check_routing({shape.layers, shape.experts}, routed, assignments);
  if (adds_up.ok()) return {};
  return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition, "{}: {}", where(),
                          adds_up.error().message);
}

}  // namespace moetrain
