#include "trainer/rank/step_loop.h"

#include <chrono>
#include <utility>
#include <vector>

#include "trainer/parallel/replica_check.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// This many non-finite steps in a row are no accident: the parameters do not recover by themselves.
constexpr uint64_t kSkippedInARowMax = 10;

}  // namespace

// Times one step, from its boundary on.
class StepLoop::Timer {
 public:
  explicit Timer(const EpochComm& comm) : comm_(comm), waited_before_ns_(comm.waited_ns()) {}

  StepTime time() const {
    const std::chrono::duration<double, std::milli> whole =
        std::chrono::steady_clock::now() - begin_;
    const auto waited_ns = static_cast<double>(comm_.waited_ns() - waited_before_ns_);
    return {.ms = whole.count(), .waited_ms = waited_ns / 1e6};
  }

 private:
  const EpochComm& comm_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const int64_t waited_before_ns_;
};

Result<StepLoop::Stop> StepLoop::run(EpochComm& comm) {
  const RankState& state = parts_.state;
  const SavedSteps& saved = parts_.saved;
  CheckpointDriver& checkpoints = parts_.checkpoints;
  stepped_ = false;
  for (;;) {
    const Timer timer(comm);

    // 1. The ranks meet. ckptd leases slabs for a snapshot meanwhile.
    const bool early = checkpoints.begins_early();
    const Result<Boundary> met = meet(comm, early);
    const bool complete = state.progress.step >= state.options.steps;
    const bool last = met.ok() && (complete || (met->stop && !saved.saved_before()));
    if (met.ok() && !last && !saved.saved_before() && (met->drain || met->joiners)) {
      if (early) checkpoints.drop("the group changes");
      return met->drain ? Stop::kDrain : Stop::kJoin;
    }
    if (const auto over = state.member.epoch_over()) {
      return make_error(ErrorCode::kAborted, "{}", *over);
    }
    if (!met.ok()) return met.error();
    if (met->failed_snapshot != 0) parts_.taker.abandon(met->failed_snapshot);
    if (last) {
      if (early) checkpoints.drop("the run was stopped");
      return Stop::kLastStep;
    }

    // 2. The snapshot of the current step, if one is due.
    checkpoints.take(comm, *met, {.early = early, .experts_move = parts_.replan.due()});

    // 3. The step.
    stepped_ = true;
    const Status stepped = step(comm, timer);
    checkpoints.step_ended();
    CKPT_TRY(stepped);
  }
}

Result<Boundary> StepLoop::meet(EpochComm& comm, bool snapshot_early) {
  RankState& state = parts_.state;
  CheckpointDriver& checkpoints = parts_.checkpoints;
  state.member.poll();
  CKPT_TRY(checkpoints.poll());
  const bool daemon_absent = !state.member.answers();
  if (snapshot_early) checkpoints.begin_early(daemon_absent);
  Boundary mine{.stop = state.asked.stop.load(),
                .daemon_absent = daemon_absent,
                .drain = state.asked.drain.load(),
                .joiners = state.member.session().joiners_waiting() > 0};
  checkpoints.fill(mine);
  std::vector<int64_t> values = to_values(mine);
  CKPT_TRY(comm.all_reduce_max(values));
  const Boundary met = boundary_from(values);
  checkpoints.apply_boundary(met);
  return met;
}

Status StepLoop::step(EpochComm& comm, const Timer& timer) {
  const RankState& state = parts_.state;
  // 1. Replicated experts move if a re-plan is due and the move pays. Sharded ones are placed by
  // the plan of this step.
  CKPT_TRY(parts_.replan.replan_if_due(comm));
  CKPT_TRY(parts_.placement.place());

  // 2. The ranks agree on the pace of checkpoints, if it is time to.
  CKPT_TRY(parts_.pace.decide(comm));

  // 3. Forward, backward, gradients reduced; then the update.
  const bool after_snapshot = parts_.saved.current_is_saved();
  tracer_.begin_step();
  const Result<StepResult> result = comm.lend([&](Comm& group) {
    return state.options.elastic ? all_or_none_step(group) : plain_step(group);
  });
  if (!result.ok()) return result.error();
  parts_.placement.step_done();

  // 4. Report before anything else can fail: all ranks have done the step, and if the group is lost
  // now, no other rank reports it.
  report(*result, timer, after_snapshot);

  // 5. Checks.
  CKPT_TRY(check_step(comm, result->step));
  parts_.state.member.group_worked();
  parts_.faults.step_done(result->step);
  if (state.progress.skipped_in_a_row < kSkippedInARowMax) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: the loss or the gradient was not finite for {} steps in a row; try a lower"
                    " --lr from an older checkpoint",
                    state.where(), kSkippedInARowMax);
}

// Survivors of a loss continue with their state, so all ranks apply the step or none does.
Result<StepResult> StepLoop::all_or_none_step(Comm& comm) {
  RankState& state = parts_.state;
  CKPT_ASSIGN(PendingStep pending, state.trainer.compute(comm, *state.held.model, state.progress));
  CKPT_TRY(check_routing_of_step(pending.routed));
  parts_.faults.before_update(pending.step);
  // A rank enters the barrier when its part of the step is complete. Any rank that leaves the
  // barrier may have applied the step.
  parts_.live.set_pending(std::move(pending));
  CKPT_TRY(comm.barrier());
  return state.trainer.apply(*state.held.model, state.progress, parts_.live.take_pending(),
                             before_write());
}

// After a loss all ranks return to a checkpoint, so no rank waits for the others' updates.
Result<StepResult> StepLoop::plain_step(Comm& comm) {
  RankState& state = parts_.state;
  const auto before_update = [this](uint64_t step, std::span<const int64_t> routed) -> Status {
    CKPT_TRY(check_routing_of_step(routed));
    parts_.faults.before_update(step);
    return {};
  };
  return state.trainer.step(comm, *state.held.model, state.progress, before_update, before_write());
}

Trainer::BeforeWrite StepLoop::before_write() {
  return [this](const WeightState& state) { parts_.taker.before_write(state); };
}

// A dropless step gives every token to top-k experts of each layer.
Status StepLoop::check_routing_of_step(std::span<const int64_t> routed) const {
  const TrainConfig& config = parts_.state.options.config;
  const auto assignments = static_cast<int64_t>(config.tokens_per_step() * config.model.top_k);
  const Status adds_up =
      check_routing({config.model.layers, config.model.experts}, routed, assignments);
  if (adds_up.ok()) return {};
  return make_error(ErrorCode::kFailedPrecondition, "{}: {}", parts_.state.where(),
                    adds_up.error().message);
}

void StepLoop::report(const StepResult& result, const Timer& timer, bool after_snapshot) {
  StepTime time = timer.time();
  time.plan = parts_.placement.wait();
  const SnapshotStall stall = parts_.taker.take_stall();
  parts_.replan.computed(parts_.state.held.model->expert_work());
  parts_.state.pacer.stepped(time.ms - stall.ms, stall.ms, after_snapshot);
  parts_.reporter.report(result, time, stall);
  tracer_.step_done(result.step);
}

// Compares replicas, after the steps that --check-replicas asks for.
Status StepLoop::check_step(EpochComm& comm, uint64_t step) {
  const RankOptions& options = parts_.state.options;
  const uint64_t every = options.check_replicas_every;
  if (every == 0 || step % every != 0) return {};
  const Status same =
      comm.lend([this](Comm& group) { return check_replicas(group, *parts_.state.held.model); });
  if (same.ok()) return {};
  return make_error(same.error().code, "run {} step {} {}", options.run, step,
                    same.error().message);
}

}  // namespace moetrain
