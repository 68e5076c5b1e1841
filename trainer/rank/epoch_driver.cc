#include "trainer/rank/epoch_driver.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace moetrain {

namespace client = ckpt::client;

namespace {

// ckptd sees a dead process within a millisecond. This bounds the wait for one that only hangs.
constexpr uint32_t kEpochEndTimeoutMs = 10'000;
// Timeout for reporting a clean leave to ckptd.
constexpr uint32_t kLeaveMs = 1'000;

}  // namespace

EpochDriver::EpochDriver(RankState& state)
    : state_(state),
      faults_(state),
      reporter_(state),
      pace_(state),
      saved_(state.partial, state.progress),
      taker_(state, pace_),
      checkpoints_(state, saved_, taker_),
      restorer_(state, pace_, reporter_),
      migrator_(state, faults_, reporter_),
      ranges_(state, faults_, migrator_.live()),
      view_return_({state, migrator_.live(), ranges_, restorer_, saved_, checkpoints_, faults_}),
      replan_(state, migrator_),
      placement_(state),
      steps_({state, saved_, taker_, checkpoints_, pace_, replan_, placement_, migrator_.live(),
              reporter_, faults_}),
      last_({state, saved_, taker_, checkpoints_, steps_}) {}

Status EpochDriver::run() {
  Ending ending = Ending::kLeft;
  while (ending == Ending::kLeft) {
    CKPT_ASSIGN(ending, run_epoch());
  }
  if (ending == Ending::kSaved) {
    state_.events.write({.step = state_.progress.step}, SavedEvent{stopped_because_});
  }
  // Other ranks may still wait for this commit: they must not count this rank as lost.
  (void)state_.member.session().leave(kLeaveMs);
  return {};
}

Result<EpochDriver::Ending> EpochDriver::run_epoch() {
  Member& member = state_.member;
  CKPT_ASSIGN(const client::Epoch epoch, join());
  Result<Member::Group> group = member.connect(epoch, *state_.held.device);
  if (!group.ok()) {
    if (!is_group_loss(group.error())) return group.error();
    return leave_lost_group(nullptr, group.error().message);
  }
  EpochComm comm(member, std::move(group->comm));
  saved_.begin_epoch(epoch.goes_on);
  checkpoints_.begin_epoch(epoch);
  take_seat(epoch);
  log_collectives(group->collectives);

  TrainingEvent training{.lineage = epoch.lineage, .group = epoch.size};
  if (!state_.held.device->is_host()) {
    training.collectives = group->collectives.nccl ? "nccl" : "host";
  }
  Status ready;
  if (epoch.goes_on) {
    ready = continue_lineage(comm, epoch, training);
  } else {
    Result<RecoveryReport> restored = restore(epoch);
    // Unless a peer was lost, the error is ckptd's answer, and final.
    if (!restored.ok() && !member.epoch_over()) return restored.error();
    ready = restored.ok() ? settle(comm, epoch, std::move(*restored), training) : restored.error();
  }
  if (ready.ok()) {
    has_trained_ = true;
    pace_.fill_agreed(training);
    state_.events.write(state_.here(), std::move(training));
    return train(comm);
  }
  if (member.returns_to_view()) return leave_epoch(comm, ready.error().message);
  if (is_group_loss(ready.error())) return leave_lost_group(&comm, ready.error().message);
  return ready.error();
}

Result<client::Epoch> EpochDriver::join() {
  const bool sharded = state_.options.experts_sharded();
  // Sharded experts: a survivor continues even without state, which the group then gets from a
  // view.
  const bool has_state = migrator_.live().has_state() || (sharded && has_trained_);
  state_.events.write(JoiningEvent{.pid = ::getpid()});
  // The first start of a run changes no membership; that of a joining rank does.
  if (has_state || state_.options.resume == CKPT_RESUME_CONTINUE) faults_.enter_phase("join");
  CKPT_ASSIGN(client::Epoch epoch, state_.member.join(has_state));
  state_.seat.epoch = epoch.epoch;
  stopped_because_.clear();
  state_.events.write({.epoch = epoch.epoch}, ConnectingEvent{});
  // Snapshots of the previous epoch have ended, or all ranks had handed them over.
  checkpoints_.collect();
  if (epoch.goes_on) faults_.enter_phase("connect");
  return epoch;
}

void EpochDriver::take_seat(const client::Epoch& epoch) {
  const RankOptions& options = state_.options;
  state_.seat.rank = epoch.rank;
  // Without numbers of members, ranks and processes have the same numbers.
  state_.seat.group = epoch.members.empty() ? first_group(epoch.size, options.nodes)
                                            : group_of(epoch.members, options.nodes);
  state_.partial.set_domains(state_.seat.group.domain_of_rank);
}

// Logs once why GPUs exchange through host memory.
void EpochDriver::log_collectives(const DeviceCollectives& collectives) {
  if (collectives.reporting_rank != state_.seat.rank) return;
  if (collectives.reason == logged_collectives_) return;
  logged_collectives_ = collectives.reason;
  if (collectives.reason.empty()) return;
  const std::string& why = state_.member.no_nccl();
  state_.events.log(fmt::format("epoch {}: GPUs exchange through host memory, without NCCL: {}{}{}",
                                state_.seat.epoch, collectives.reason, why.empty() ? "" : ": ",
                                why));
}

// This rank's part of a start from the seed, or from a view that ckptd names.
Result<RecoveryReport> EpochDriver::restore(const client::Epoch& epoch) {
  // Until all ranks have restored theirs, no rank may rely on the state in memory.
  migrator_.live().forget();
  ranges_.reset();
  if (epoch.resume) state_.events.write({.epoch = epoch.epoch}, RestoringEvent{});
  CKPT_ASSIGN(RecoveryReport report, restorer_.restore(epoch));
  saved_.resumed();
  return report;
}

// All ranks have restored their part.
Status EpochDriver::settle(EpochComm& comm, const client::Epoch& epoch, RecoveryReport report,
                           TrainingEvent& training) {
  if (epoch.resume) CKPT_TRY(restorer_.settle(comm, *epoch.resume, report));
  migrator_.live().is_whole();
  training.resumed = epoch.resume.has_value();
  training.view_lineage = epoch.resume ? epoch.resume->lineage : 0;
  training.restored = std::move(report.restored);
  training.relayout = std::move(report.relayout);
  return {};
}

// Survivors keep their state, and bring joining ranks to the same step.
Status EpochDriver::continue_lineage(EpochComm& comm, const client::Epoch& epoch,
                                     TrainingEvent& training) {
  const uint64_t begin_ns = monotonic_ns();
  state_.events.write({.epoch = epoch.epoch}, RestoringEvent{});
  training.survivors_continue = true;
  training.joins = epoch.previous_ranks[epoch.rank] < 0;
  if (training.joins) migrator_.live().forget();
  training.regroup_ms = ms_between(lost_ns_.value_or(begin_ns), begin_ns);
  faults_.enter_phase("agree");
  if (state_.options.experts_sharded()) {
    CKPT_ASSIGN(const bool whole, ranges_.is_whole(comm));
    if (!whole) return return_to_view(comm, epoch, training);
  }
  CKPT_TRY(agree_on_step(comm));
  saved_.lineage_continued();
  const uint64_t agreed_ns = monotonic_ns();
  if (const auto& late = migrator_.live().late_step()) {
    reporter_.report(*late, {}, taker_.take_stall());
  }
  const uint32_t k_before = state_.partial.k();
  CKPT_ASSIGN(RecoveryReport report, keep_state(comm, epoch));
  pace_.membership_changed({.lost_experts = !migrator_.live().lost().empty(),
                            .lost_tokens = report.restored.lost_tokens,
                            .k_before = k_before,
                            .lost_ns = lost_ns_});
  report.relayout.plan_ms += ms_between(begin_ns, agreed_ns);
  training.restored = std::move(report.restored);
  training.relayout = std::move(report.relayout);
  return {};
}

Status EpochDriver::agree_on_step(EpochComm& comm) {
  CKPT_ASSIGN(const uint64_t saved_step, migrator_.agree(comm, saved_.newest()));
  saved_.agreed(saved_step);
  return {};
}

// The ranks are at the same step: every rank gets the state that it has in this group.
Result<RecoveryReport> EpochDriver::keep_state(EpochComm& comm, const client::Epoch& epoch) {
  if (state_.options.experts_sharded()) return ranges_.recut(comm, /*stays=*/{});
  CKPT_ASSIGN(RecoveryReport report,
              migrator_.migrate(comm, placement_planner(state_, {}), epoch.lineage));
  replan_.migrated(report);
  return report;
}

// Sharded experts: a lost rank took its part of every one with it.
Status EpochDriver::return_to_view(EpochComm& comm, const client::Epoch& epoch,
                                   TrainingEvent& training) {
  CKPT_ASSIGN(ViewReturn::Returned returned, view_return_.run(comm, epoch));
  training.resumed = returned.view.has_value();
  training.view_lineage = returned.view ? returned.view->lineage : 0;
  training.restored = std::move(returned.report.restored);
  training.relayout = std::move(returned.report.relayout);
  return {};
}

Result<EpochDriver::Ending> EpochDriver::train(EpochComm& comm) {
  pace_.report_pace();
  replan_.begin();
  CKPT_TRY(placement_.begin());
  pace_.trains();
  lost_ns_.reset();
  const Result<StepLoop::Stop> stop = steps_.run(comm);
  if (steps_.stepped()) last_.renew_deadline();
  Result<Ending> ending = Ending::kLeft;
  if (!stop.ok()) {
    if (!is_group_loss(stop.error())) return stop.error();
    ending = leave_lost_group(&comm, stop.error().message);
  } else if (*stop == StepLoop::Stop::kLastStep) {
    ending = save_last(comm);
  } else if (*stop == StepLoop::Stop::kDrain) {
    ending = drain(comm);
  } else {
    ending = leave_epoch(comm, "others join");
  }
  pace_.left_training();
  return ending;
}

Result<EpochDriver::Ending> EpochDriver::save_last(EpochComm& comm) {
  CKPT_ASSIGN(const std::optional<GroupLoss> lost, last_.save(comm, restorer_.resumed_whole()));
  if (lost) return leave_lost_group(&comm, lost->reason);
  return Ending::kSaved;
}

// Ranks that were asked to leave hand their state over and leave; the others continue.
Result<EpochDriver::Ending> EpochDriver::drain(EpochComm& comm) {
  std::vector<int64_t> leaves(comm.size());
  const int64_t mine = state_.asked.drain.load() ? 1 : 0;
  const Status gathered = comm.all_gather(std::span(&mine, 1), leaves);
  if (!gathered.ok()) return leave_lost_group(&comm, gathered.error().message);
  std::vector<bool> stays;
  stays.reserve(leaves.size());
  for (const int64_t leaving : leaves) stays.push_back(leaving == 0);
  // If no rank would be left, or too few to hold all experts, all save and the run stops.
  const auto left = static_cast<uint32_t>(std::count(stays.begin(), stays.end(), true));
  if (left == 0) return save_last(comm);
  if (const auto lacking = lacks_slots(state_.options.placing, state_.options.config.model, left)) {
    stopped_because_ = *lacking;
    return save_last(comm);
  }
  Result<Relayout> relayout = hand_over(comm, stays);
  if (!relayout.ok()) {
    if (!is_group_loss(relayout.error())) return relayout.error();
    return leave_lost_group(&comm, relayout.error().message);
  }
  if (stays[state_.seat.rank]) {
    return regroup("a rank was asked to leave; the others have its state", std::move(*relayout));
  }
  state_.events.write(state_.here(), DrainedEvent{std::move(*relayout)});
  return Ending::kDrained;
}

// Moves all state to the ranks that stay.
Result<Relayout> EpochDriver::hand_over(EpochComm& comm, const std::vector<bool>& stays) {
  if (state_.options.experts_sharded()) {
    CKPT_ASSIGN(const bool whole, ranges_.is_whole(comm));
    CKPT_ASSERT(whole);  // the ranks have just trained together
  }
  CKPT_TRY(agree_on_step(comm));
  if (state_.options.experts_sharded()) {
    CKPT_ASSIGN(RecoveryReport report, ranges_.recut(comm, stays));
    return std::move(report.relayout);
  }
  // Every expert has a live holder, so no lineage is needed to restore one.
  CKPT_ASSIGN(RecoveryReport report,
              migrator_.migrate(comm, placement_planner(state_, stays), /*lineage=*/0));
  replan_.migrated(report);
  return std::move(report.relayout);
}

// `comm` is null if the group was never connected.
EpochDriver::Ending EpochDriver::leave_lost_group(EpochComm* comm, const std::string& reason) {
  Member& member = state_.member;
  member.group_failed();
  const std::string why = member.epoch_over().value_or(reason);
  taker_.drop(why);
  // The others see their connections to this rank break, and leave as well.
  if (comm != nullptr) comm->abort(why);
  state_.events.write(state_.here(), GroupLostEvent{why});
  if (!lost_ns_) lost_ns_ = monotonic_ns();
  // In an elastic run, asking for the next epoch ends this one for those that do not ask.
  if (!state_.options.elastic) member.await_epoch_end(kEpochEndTimeoutMs);
  return Ending::kLeft;
}

// All ranks leave for the same reason, and none is lost.
EpochDriver::Ending EpochDriver::leave_epoch(EpochComm& comm, const std::string& reason) {
  // The first rank to leave breaks the connections of the others. After the barrier all know why.
  (void)comm.barrier();
  return regroup(reason, {});
}

EpochDriver::Ending EpochDriver::regroup(const std::string& reason, Relayout handed_over) {
  taker_.drop(reason);
  state_.member.group_worked();
  state_.events.write(state_.here(), RegroupingEvent{reason, std::move(handed_over)});
  state_.log_once(reason);
  return Ending::kLeft;
}

}  // namespace moetrain
