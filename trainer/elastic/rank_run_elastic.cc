// The part of RankRun that goes on with whoever is left: an epoch of survivors, and joiners.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "formats/base/assert.h"
#include "formats/base/counted.h"
#include "trainer/elastic/lost_experts.h"
#include "trainer/elastic/rank_run.h"
#include "trainer/elastic/stop_signals.h"

namespace moetrain {

using ckpt::make_error;
using Kind = RankEvent::Kind;
namespace client = ckpt::client;

// For tests of what a death costs in each phase.
void RankRun::enter_phase(std::string_view phase) {
  if (std::ranges::find(options_.kill_in, phase) == options_.kill_in.end()) return;
  events_.write({.kind = Kind::kDying, .step = progress_.step, .text = std::string(phase)});
  ::kill(::getpid(), SIGKILL);
}

void RankRun::kill_if_asked(uint64_t step) {
  const auto come = [step](uint64_t asked) { return asked <= step; };
  if (std::ranges::none_of(options_.kill_at, come)) return;
  events_.write({.kind = Kind::kDying, .step = step});
  ::kill(::getpid(), SIGKILL);
}

// For measurements that need the same change at the same step: the next boundary is to know.
void RankRun::leave_if_asked(uint64_t step) {
  const auto come = [step](uint64_t asked) { return asked <= step; };
  if (drain_.load() || std::ranges::none_of(options_.leave_after, come)) return;
  ::raise(leave_rank_signal());
}

void RankRun::tell_collectives(const DeviceCollectives& collectives) {
  if (collectives.told_by != rank_ || collectives.reason == told_collectives_) return;
  told_collectives_ = collectives.reason;
  if (collectives.reason.empty()) return;
  const std::string& why = member_->no_nccl();
  events_.log(fmt::format("epoch {}: GPUs exchange through host memory, without NCCL: {}{}{}",
                          epoch_, collectives.reason, why.empty() ? "" : ": ", why));
}

// As an epoch begins. What failed is due again; what all had staged is on its way, and goes on with
// the group.
void RankRun::settle_snapshots(const client::Epoch& epoch) {
  for (const auto* failed : {&failed_snapshots_, &lost_snapshots_}) {
    for (const uint64_t step : *failed) {
      partial_->failed(step);
      if (saved_step_ == step) saved_step_ = 0;
    }
  }
  failed_snapshots_.clear();
  snapshot_due_ = false;
  retake_ = false;
  away_ = false;
  if (epoch.goes_on && snapshotter_) return snapshotter_->go_on(epoch.rank, epoch.epoch);
  lost_snapshots_.clear();
  snapshotter_.emplace(member_->session(), epoch.rank, link_.get(), epoch.epoch);
  snapshotter_->give_up_when(
      [this] { return member_->epoch_over().has_value() || member_->patience().over(); });
}

// The group went on from its last step, whose snapshot may still be on its way.
Result<bool> RankRun::saved_in_the_end(Comm& comm) {
  if (!went_on_) return true;
  events_.write({.kind = Kind::kSaving, .epoch = epoch_, .step = progress_.step});
  for (const SnapshotOutcome& outcome : snapshotter_->drain(save_ms_left())) {
    report_snapshot(outcome);
    if (!outcome.durable) lost_snapshots_.insert(outcome.step);
  }
  const uint64_t step = progress_.step;
  int64_t unsaved = lost_snapshots_.contains(step) || snapshotter_->in_flight(step) ? 1 : 0;
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_max(std::span(&unsaved, 1)));
  }
  if (unsaved == 0) return true;
  partial_->failed(step);
  lost_snapshots_.erase(step);
  saved_step_ = 0;
  return false;
}

PlanPlacement RankRun::planner(const std::vector<bool>& stays) const {
  return [this, stays](uint32_t ranks, const std::vector<int64_t>& routed,
                       const std::vector<std::vector<bool>>& held) -> Result<ExpertPlacement> {
    CKPT_ASSERT(ranks == group_.ranks);
    Result<ExpertPlacement> next =
        next_placement(options_.placing, options_.config.model, group_, stays, routed, held);
    if (next.ok()) return next;
    return make_error(next.error().code, "{}: {}", where(), next.error().message);
  };
}

Status RankRun::go_on(Comm& comm, const client::Epoch& epoch, RankEvent& event) {
  const uint64_t begin_ns = monotonic_ns();
  events_.write({.kind = Kind::kRestoring, .epoch = epoch.epoch});
  went_on_ = true;
  event.goes_on = true;
  event.joins = epoch.previous_ranks[epoch.rank] < 0;
  if (event.joins) live_->forget();
  event.regroup_ms = ms_between(lost_ns_.value_or(begin_ns), begin_ns);
  enter_phase("agree");
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(live_->agree(comm));
  }
  // Of what is lost the one whose view all have taken over may not have heard.
  std::erase_if(lost_snapshots_, [&](uint64_t step) { return !partial_->counts_on(step); });
  const uint64_t agreed_ns = monotonic_ns();
  if (live_->late_step()) report_step(*live_->late_step(), {});
  const uint32_t k_before = partial_->k();
  CKPT_TRY(change_places(comm, planner({}), epoch.lineage, event));
  pace_of_change(k_before, event.lost_tokens);
  event.plan_ms += ms_between(begin_ns, agreed_ns);
  event.step = progress_.step;
  return {};
}

Status RankRun::change_places(Comm& comm, const PlanPlacement& planner, uint32_t lineage,
                              RankEvent& event) {
  const uint64_t begin_ns = monotonic_ns();
  const uint32_t k_before = partial_->k();
  std::optional<EpochWatch::Loan> loan(std::in_place, *watch_);
  enter_phase("plan");
  CKPT_TRY(live_->plan(comm, planner));
  const uint64_t planned_ns = monotonic_ns();
  enter_phase("move");
  CKPT_TRY(live_->move(comm));
  enter_phase("commit");
  CKPT_TRY(live_->commit(comm));
  loan.reset();
  memory_.emplace(units_, *model_, trainer_unit_, *stamps_);
  enter_phase("restore");
  ExpertRestore restored;
  if (!live_->lost_here().empty()) {
    CKPT_ASSIGN(restored, restore_experts(member_->session(), options_.run, lineage, progress_.step,
                                          live_->lost_here(), units_, *memory_, *model_,
                                          options_.config.seed, *stamps_));
    model_->parameters_changed();
    event.bytes_memory = restored.bytes_memory;
    event.bytes_disk = restored.bytes_disk;
    event.stale_units = restored.stale_units;
    for (const std::string& note : restored.notes) events_.log(where() + ": " + note);
  }
  if (!live_->lost().empty()) {
    CKPT_TRY(same_versions(comm, lineage, std::move(restored.versions), event));
  }
  enter_phase("settle");
  loan.emplace(*watch_);
  CKPT_ASSIGN(const LiveState::Settled settled, live_->settle(comm, restored.in_memory));
  loan.reset();
  event.lost_tokens = settled.lost_tokens;
  event.bytes_moved = settled.bytes_moved;
  event.plt = partial_->plt(progress_.routed_tokens);
  event.plt_rollback = partial_->meter().plt_rollback(progress_.routed_tokens);
  event.lost = partial_->lost();
  tell_rollback(settled, k_before, event);
  event.plan_ms = ms_between(begin_ns, planned_ns);
  event.migrate_ms = ms_between(planned_ns, monotonic_ns());
  if (live_->lost().empty()) replanner_->moved(event.bytes_moved, event.migrate_ms);
  return {};
}

// Of experts that came back older than the rest: for people, the report and the metrics.
void RankRun::tell_rollback(const LiveState::Settled& settled, uint32_t k_before,
                            RankEvent& event) {
  const std::vector<uint32_t>& lost = live_->lost();
  rolled_back_.insert(rolled_back_.end(), lost.begin(), lost.end());
  rolled_back_to_.insert(rolled_back_to_.end(), settled.versions.begin(), settled.versions.end());
  event.experts_from_seed =
      static_cast<uint64_t>(std::ranges::count(settled.versions, int64_t{-1}));
  const uint64_t saved = lost.size() - event.experts_from_seed;
  if (rank_ != 0) return;
  if (event.experts_from_seed > 0) {
    events_.log(
        event.experts_from_seed == 1
            ? fmt::format("{}: 1 expert was lost with all it had learned: no checkpoint has it, it"
                          " begins again from the seed",
                          where())
            : fmt::format("{}: {} experts were lost with all they had learned: no checkpoint has"
                          " them, they begin again from the seed",
                          where(), event.experts_from_seed));
  }
  if (saved > 0) {
    events_.log(fmt::format("{}: {} lost and came back from ckptd", where(),
                            ckpt::base::counted(saved, "expert was", "experts were")));
  }
  if (settled.lost_tokens == 0) return;
  const PltMeter& plt = partial_->meter();
  events_.log(
      fmt::format("{}: {} tokens are lost, {:.3f} % of all so far ({:.3f} % in rollbacks){}",
                  where(), settled.lost_tokens, 100 * plt.plt(progress_.routed_tokens),
                  100 * plt.plt_rollback(progress_.routed_tokens), k_change_text(k_before)));
}

Result<StepResult> RankRun::all_or_none_step(Comm& comm) {
  CKPT_ASSIGN(PendingStep pending, trainer_->compute(comm, *model_, progress_));
  CKPT_TRY(check_step_routing(pending.routed));
  kill_if_asked(pending.step);
  // Inside the barrier the step is complete here, and whoever comes out of it may have applied it.
  live_->set_pending(std::move(pending));
  CKPT_TRY(comm.barrier());
  return trainer_->apply(*model_, progress_, live_->take_pending(), before_write());
}

RankRun::Ending RankRun::regroup(const std::string& reason, RankEvent change) {
  if (snapshotter_) snapshotter_->drop(reason);
  member_->group_worked();
  change.kind = Kind::kRegrouping;
  change.epoch = epoch_;
  change.step = progress_.step;
  change.text = reason;
  events_.write(std::move(change));
  if (rank_ == 0) events_.log(fmt::format("{}: {}", where(), reason));
  return Ending::kGroupLost;
}

RankRun::Ending RankRun::let_in(Comm& comm) { return leave_together(comm, "others join"); }

RankRun::Ending RankRun::leave_together(Comm& comm, const std::string& reason) {
  {
    // Who leaves first breaks the connections of the others: by then all know that they leave.
    const EpochWatch::Loan loan(*watch_);
    (void)comm.barrier();
  }
  return regroup(reason, {});
}

Result<RankRun::Ending> RankRun::drain(Comm& comm) {
  std::vector<int64_t> leaves(comm.size());
  const int64_t mine = drain_.load() ? 1 : 0;
  Status drained;
  {
    const EpochWatch::Loan loan(*watch_);
    drained = comm.all_gather(std::span(&mine, 1), leaves);
  }
  if (!drained.ok()) return leave_group(&comm, drained.error().message);
  std::vector<bool> stays;
  stays.reserve(leaves.size());
  for (const int64_t leaving : leaves) stays.push_back(leaving == 0);
  // Nobody would be left to hand anything to, or too few: all save, and the run stops.
  const auto left = static_cast<uint32_t>(std::count(stays.begin(), stays.end(), true));
  if (left == 0) return save_last(comm);
  if (const auto lacking = lacks_slots(options_.placing, options_.config.model, left)) {
    stopped_because_ = *lacking;
    return save_last(comm);
  }
  RankEvent event;
  {
    const EpochWatch::Loan loan(*watch_);
    const Result<Agreement> agreed = live_->agree(comm);
    if (!agreed.ok()) drained = agreed.error();
  }
  if (drained.ok()) drained = change_places(comm, planner(stays), 0, event);
  if (!drained.ok()) {
    if (!is_group_loss(drained.error())) return drained.error();
    return leave_group(&comm, drained.error().message);
  }
  if (stays[rank_]) {
    return regroup("a rank was asked to leave; the others have its state", std::move(event));
  }
  event.kind = Kind::kDrained;
  event.epoch = epoch_;
  event.step = progress_.step;
  events_.write(std::move(event));
  (void)member_->session().leave(kLeaveMs);
  return Ending::kDrained;
}

}  // namespace moetrain
