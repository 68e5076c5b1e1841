#include "trainer/elastic/rank_run.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "trainer/checkpoint/device_link.h"
#include "trainer/checkpoint/plan.h"
#include "trainer/elastic/heartbeat.h"
#include "trainer/elastic/rank_device.h"
#include "trainer/elastic/snapshot_troubles.h"
#include "trainer/parallel/replica_check.h"

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

using Clock = std::chrono::steady_clock;
using Kind = RankEvent::Kind;

namespace {

// A run of skipped steps this long is no accident any more: the parameters do not come back by
// themselves.
constexpr uint64_t kSkippedInARowMax = 10;
// ckptd sees a dead process within a millisecond; this bounds the wait for one that only hangs.
constexpr uint32_t kEpochEndTimeoutMs = 10'000;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

bool RankRun::is_group_loss(const Error& error) {
  return error.code == ErrorCode::kAborted || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kUnavailable;
}

std::string RankRun::where() const {
  return fmt::format("run {} step {}", options_.run, progress_.step);
}

Status RankRun::prepare() {
  if (options_.pin) CKPT_TRY(pin_to_cpu(options_.rank));
  CKPT_TRY(validate(options_.config, options_.ranks));
  config_json_ = to_json(options_.config);
  CKPT_ASSIGN(corpus_, Corpus::load(options_.data));
  const ModelConfig& shape = options_.config.model;
  CKPT_TRY(corpus_->check_fits(shape.seq_len));
  units_ = state_units(shape);
  rank_ = options_.rank % options_.ranks;
  CKPT_ASSIGN(placement_, first_placement(options_));
  CKPT_ASSIGN(device_, make_rank_device(options_.device, options_.config.precision, options_.gpu,
                                        options_.collective_timeout_ms));
  CKPT_ASSIGN(auto store, make_replicated_store(*device_, shape, placement_, rank_));
  CKPT_ASSIGN(model_, Model::create(*device_, shape, std::move(store)));
  trainer_unit_.resize(units_[kTrainerUnit].bytes);
  stamps_.emplace(ExpertGrid{shape.layers, shape.experts});
  memory_.emplace(units_, *model_, trainer_unit_, *stamps_);
  trainer_.emplace(options_.config, corpus_->train());
  CKPT_TRY(validate(options_.partial, shape.experts));
  partial_.emplace(units_, placement_, options_.partial);
  pacer_.emplace(pace_options());
  replanner_.emplace(replan_options());
  live_.emplace(LiveState::Parts{*model_, *trainer_, progress_, *partial_, *pacer_, *stamps_,
                                 placement_, saved_step_, last_loss_, [this] { settle_device(); }});
  // The last survivor of an elastic group saves all by itself.
  const uint64_t share = options_.moves_experts()
                             ? total_bytes(units_)
                             : largest_share(units_, placement_, options_.partial.dense);
  CKPT_ASSIGN(member_, Member::open(options_, units_, share));
  if (!device_->is_host()) {
    CKPT_ASSIGN(link_,
                make_cuda_link(member_->session(), *device_, options_.collective_timeout_ms));
  }
  return {};
}

Status RankRun::hold(const ExpertPlacement& placement, uint32_t rank) {
  rank_ = rank;
  placement_ = placement;
  settle_device();
  CKPT_ASSIGN(auto store, make_replicated_store(*device_, options_.config.model, placement_, rank_,
                                                model_->experts().release()));
  CKPT_TRY(model_->replace_experts(std::move(store)));
  memory_.emplace(units_, *model_, trainer_unit_, *stamps_);
  return {};
}

Status RankRun::run() {
  left_training_ = Clock::now();
  CKPT_TRY(prepare());
  for (;;) {
    CKPT_ASSIGN(const Ending ending, run_epoch());
    if (ending == Ending::kDrained) return {};
    if (ending == Ending::kSaved) break;
  }
  events_.write({.kind = Kind::kSaved, .step = progress_.step, .text = stopped_because_});
  // The others may still wait for news of the same commit; nobody is lost any more.
  (void)member_->session().leave(kLeaveMs);
  return {};
}

Result<RankRun::Ending> RankRun::run_epoch() {
  events_.write({.kind = Kind::kJoining, .pid = ::getpid()});
  // A first start is no change of the members; that of a joiner is.
  if (live_->has_state() || options_.resume == CKPT_RESUME_CONTINUE) enter_phase("join");
  CKPT_ASSIGN(const client::Epoch epoch, member_->join(live_->has_state()));
  epoch_ = epoch.epoch;
  stopped_because_.clear();
  events_.write({.kind = Kind::kConnecting, .epoch = epoch_});
  report_snapshots();  // what the epoch before has left is settled, or was staged by all
  if (epoch.goes_on) enter_phase("connect");
  Result<Member::Group> group = member_->connect(epoch, *device_);
  if (!group.ok()) {
    if (!is_group_loss(group.error())) return group.error();
    return leave_group(nullptr, group.error().message);
  }
  Comm& comm = *group->comm;
  settle_snapshots(epoch);
  rank_ = epoch.rank;
  // Without numbers of members processes and ranks are the same.
  group_ = epoch.members.empty() ? first_group(epoch.size, options_.nodes)
                                 : group_of(epoch.members, options_.nodes);
  partial_->set_domains(group_.domain_of_rank);
  tell_collectives(group->collectives);
  RankEvent event{.kind = Kind::kTraining, .epoch = epoch.epoch, .lineage = epoch.lineage};
  event.group = epoch.size;
  if (!device_->is_host()) event.collectives = group->collectives.nccl ? "nccl" : "host";
  Status settled;
  if (epoch.goes_on) {
    watch_.emplace(*member_, comm);
    settled = go_on(comm, epoch, event);
  } else {
    const Status restored = restore(epoch, event);
    if (!restored.ok()) {
      if (!is_group_loss(restored.error()) || !member_->epoch_over()) return restored.error();
      return leave_group(&comm, restored.error().message);
    }
    watch_.emplace(*member_, comm);
    if (epoch.resume) settled = settle(comm, *epoch.resume, event);
    if (settled.ok()) live_->is_whole();
  }
  Result<Ending> ending = Ending::kSaved;
  if (settled.ok()) {
    tell_agreed(event);
    events_.write(event);
    tell_pace();
    replanner_->begin(progress_.step, progress_.routed_tokens);
    trained_ = true;
    lost_ns_.reset();
    ending = train(comm);
    left_training_ = Clock::now();
  } else if (member_->goes_back()) {
    ending = leave_together(comm, settled.error().message);
  } else if (is_group_loss(settled.error())) {
    ending = leave_group(&comm, settled.error().message);
  } else {
    ending = settled.error();
  }
  watch_.reset();
  return ending;
}

RankRun::Ending RankRun::leave_group(Comm* comm, const std::string& reason) {
  member_->group_failed();
  const std::string why = member_->epoch_over().value_or(reason);
  if (snapshotter_) snapshotter_->drop(why);
  // The others notice by their connections to this rank, and come along.
  if (comm != nullptr) comm->abort(why);
  events_.write({.kind = Kind::kGroupLost, .epoch = epoch_, .step = progress_.step, .text = why});
  if (!lost_ns_) lost_ns_ = monotonic_ns();
  // To ask for the next epoch ends this one, where it goes on without those who do not ask.
  if (!options_.elastic) member_->await_epoch_end(kEpochEndTimeoutMs);
  return Ending::kGroupLost;
}

Result<RankRun::Boundary> RankRun::meet(Comm& comm, bool snapshot_due) {
  member_->poll();
  CKPT_TRY(snapshotter_->poll());
  report_snapshots();
  const bool away = !member_->answers();
  if (snapshot_due) {
    // Planned by all, begun by those who can: whoever plans apart from the others plans otherwise.
    Result<Snapshotter::Request> wanted = request(kRegularAttempt, /*full=*/false);
    if (!away) (void)begin_snapshot(std::move(wanted), usual_pressure());
  }
  const auto newest = [](const std::set<uint64_t>& steps) {
    return steps.empty() ? 0 : static_cast<int64_t>(*steps.rbegin());
  };
  std::vector<int64_t> mine = {stop_.load() ? 1 : 0,
                               away ? 1 : 0,
                               newest(failed_snapshots_),
                               newest(lost_snapshots_),
                               drain_.load() ? 1 : 0,
                               member_->session().joiners_waiting() > 0 ? 1 : 0,
                               retake_ ? 1 : 0};
  retake_ = false;
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_max(std::span(mine)));
  }
  const Boundary boundary{mine[0] != 0,
                          mine[1] != 0,
                          static_cast<uint64_t>(mine[2]),
                          static_cast<uint64_t>(mine[3]),
                          mine[4] != 0,
                          mine[5] != 0,
                          mine[6] != 0};
  away_ = boundary.away;
  failed_snapshots_.erase(boundary.failed_snapshot);
  lost_snapshots_.erase(boundary.lost_snapshot);
  for (const uint64_t step : {boundary.failed_snapshot, boundary.lost_snapshot}) {
    if (step != 0) partial_->failed(step);
  }
  if (saved_step_ == boundary.lost_snapshot) saved_step_ = 0;  // it is as unsaved as before
  return boundary;
}

Result<RankRun::Ending> RankRun::train(Comm& comm) {
  for (;;) {
    boundary_ = Clock::now();
    waited_before_ns_ = comm.waited_ns();
    // Without ckptd a snapshot waits until all have it again, which they learn when they meet.
    const bool early = snapshot_is_due() && !away_;
    const Result<Boundary> boundary = meet(comm, early);
    const bool ended = progress_.step >= options_.steps;
    const bool last = boundary.ok() && (ended || (boundary->stop && !saved_before()));
    if (boundary.ok() && !last && !saved_before() && (boundary->drain || boundary->joiners)) {
      if (early) drop_snapshot("the group changes");
      return boundary->drain ? drain(comm) : let_in(comm);
    }
    if (const auto over = member_->epoch_over()) return leave_group(&comm, *over);
    if (!boundary.ok()) {
      if (!is_group_loss(boundary.error())) return boundary.error();
      return leave_group(&comm, boundary.error().message);
    }
    if (boundary->failed_snapshot != 0) {
      snapshotter_->abandon(boundary->failed_snapshot, std::string(kOtherRankFailed));
      // Unless a newer one is on its way, the state is as unsaved as before.
      if (saved_step_ == boundary->failed_snapshot) saved_step_ = 0;
    }
    if (early && last) drop_snapshot("the run was stopped");
    if (last) return save_last(comm);
    snapshot_at(*boundary, early);
    if (boundary->retake) snapshot_due_ = true;  // as soon as ckptd answers all again
    const Status stepped = one_step(comm);
    // Only a step that failed early has not waited for its device: nothing was saved then.
    if (link_) link_->when_busy({});
    if (snapshotter_->begun()) saved_step_ = 0;
    if (!stepped.ok()) {
      if (!is_group_loss(stepped.error())) return stepped.error();
      return leave_group(&comm, stepped.error().message);
    }
  }
}

Status RankRun::one_step(Comm& comm) {
  save_end_.reset();  // this step is to be saved, too
  CKPT_TRY(replan(comm));
  CKPT_TRY(pace(comm));
  const bool snapshot = saved_step_ == progress_.step;
  std::optional<EpochWatch::Loan> loan(std::in_place, *watch_);
  Result<StepResult> result = options_.elastic ? all_or_none_step(comm) : plain_step(comm);
  if (!result.ok()) return result.error();
  // Before anything that may fail: it is done, by all, and nobody else tells of it if the group is
  // lost now.
  const double ms = ms_since(boundary_);
  const ExpertWork work = model_->expert_work();
  replanner_->computed(work.rows, device_->is_host() ? work.cpu_ns : 0);
  pacer_->stepped(ms - stall_ms_, stall_ms_, snapshot);
  const auto waited_ns = static_cast<double>(comm.waited_ns() - waited_before_ns_);
  report_step(*result, {.ms = ms, .waited_ms = waited_ns / 1e6});
  const uint64_t check_every = options_.check_replicas_every;
  if (check_every != 0 && result->step % check_every == 0) {
    const Status same = check_replicas(comm, *model_);
    if (!same.ok()) {
      return make_error(same.error().code, "run {} step {} {}", options_.run, result->step,
                        same.error().message);
    }
  }
  loan.reset();
  member_->group_worked();
  leave_if_asked(result->step);
  if (progress_.skipped_in_a_row < kSkippedInARowMax) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: the loss or the gradient was not finite for {} steps in a row; try a lower"
                    " --lr from an older checkpoint",
                    where(), kSkippedInARowMax);
}

Result<StepResult> RankRun::plain_step(Comm& comm) {
  const auto before_update = [&](uint64_t step, std::span<const int64_t> routed) -> Status {
    CKPT_TRY(check_step_routing(routed));
    kill_if_asked(step);
    return {};
  };
  return trainer_->step(comm, *model_, progress_, before_update, before_write());
}

void RankRun::settle_device() {
  if (link_) link_->wait_all_gathered();
}

Trainer::BeforeWrite RankRun::before_write() {
  return [this](const Parameter& parameter) {
    snapshotter_->before_write(memory_->units_of(parameter));
  };
}

void RankRun::report_step(const StepResult& result, const StepTime& time) {
  last_loss_ = result.loss;
  RankEvent event{.kind = Kind::kStep,
                  .step = result.step,
                  .plt = partial_->plt(progress_.routed_tokens),
                  .plt_rollback = partial_->meter().plt_rollback(progress_.routed_tokens),
                  .loss_bits = std::bit_cast<uint32_t>(result.loss),
                  .applied = result.applied,
                  .ms = time.ms,
                  .waited_ms = time.waited_ms,
                  .stall_ms = stall_ms_,
                  .room_ms = waits_.room_ms,
                  .slabs_ms = waits_.slabs_ms,
                  .snapshots_open = waits_.open,
                  .learning_rate = result.learning_rate,
                  .gradient_norm = result.gradient_norm,
                  .busiest_rows = result.load.busiest_rows,
                  .max_over_mean = result.load.max_over_mean(placement_.ranks)};
  if (options_.tell_routing) {
    event.routed = progress_.routed_last;
    event.resumed_at = std::exchange(resumed_at_, -1);
    event.resumed_versions = std::exchange(resumed_versions_, {});
    event.rolled_back = std::exchange(rolled_back_, {});
    event.rolled_back_to = std::exchange(rolled_back_to_, {});
  }
  events_.write(std::move(event));
  stall_ms_ = 0;
  waits_ = {};
}

int run_rank(const RankOptions& options, EventWriter& events, const std::atomic<bool>& stop,
             const std::atomic<bool>& drain) {
  const Heartbeat heartbeat(events, std::chrono::milliseconds(options.heartbeat_ms));
  RankRun run(options, events, stop, drain);
  const Status status = run.run();
  if (status.ok()) return 0;
  events.write({.kind = Kind::kFatal,
                .text = status.error().message,
                .code = static_cast<int>(status.error().code)});
  return ckpt::exit_code_for(status.error().code);
}

}  // namespace moetrain
