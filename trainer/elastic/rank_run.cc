#include "trainer/elastic/rank_run.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "trainer/checkpoint/device_link.h"
#include "trainer/checkpoint/restore.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/elastic/rank_device.h"

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

namespace {

using Clock = std::chrono::steady_clock;
using Kind = RankEvent::Kind;

// A run of skipped steps this long is no accident any more: the parameters do not come back by
// themselves.
constexpr uint64_t kSkippedInARowMax = 10;
// ckptd sees a dead process within a millisecond; this bounds the wait for one that only hangs.
constexpr uint32_t kEpochEndTimeoutMs = 10'000;
// A restart of ckptd in the middle of the last snapshot is survived by libckpt; what is tried again
// is a snapshot that failed.
constexpr uint32_t kLastSnapshotAttempts = 3;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Errors that come from a peer's loss, directly or because somebody aborted.
bool is_group_loss(const Error& error) {
  return error.code == ErrorCode::kAborted || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kUnavailable;
}

}  // namespace

std::string RankRun::where() const {
  return fmt::format("run {} step {}", options_.run, progress_.step);
}

Status RankRun::prepare() {
  CKPT_TRY(validate(options_.config, options_.ranks));
  CKPT_ASSIGN(corpus_, Corpus::load(options_.data));
  const ModelConfig& shape = options_.config.model;
  CKPT_TRY(corpus_->check_fits(shape.seq_len));
  units_ = state_units(shape);
  CKPT_ASSIGN(placement_, static_placement(shape.layers, shape.experts, options_.ranks));
  CKPT_ASSIGN(device_, make_rank_device(options_.device, options_.config.precision, options_.rank,
                                        options_.collective_timeout_ms));
  CKPT_ASSIGN(auto store, make_replicated_store(*device_, shape, placement_, options_.rank));
  CKPT_ASSIGN(model_, Model::create(*device_, shape, std::move(store)));
  trainer_unit_.resize(units_[kTrainerUnit].bytes);
  memory_.emplace(units_, *model_, trainer_unit_);
  trainer_.emplace(options_.config, corpus_->train());
  const uint64_t share = bytes_of_rank(snapshot_plan(units_, placement_), options_.rank);
  CKPT_ASSIGN(member_, Member::open(options_, units_, share));
  if (!device_->is_host()) {
    CKPT_ASSIGN(link_,
                make_cuda_link(member_->session(), *device_, options_.collective_timeout_ms));
  }
  return {};
}

Status RankRun::run() {
  CKPT_TRY(prepare());
  for (;;) {
    CKPT_ASSIGN(const Ending ending, run_epoch());
    if (ending == Ending::kSaved) break;
  }
  events_.write({.kind = Kind::kSaved, .step = progress_.step});
  // The others may still wait for news of the same commit; nobody is lost any more.
  (void)member_->session().leave();
  return {};
}

Result<RankRun::Ending> RankRun::run_epoch() {
  events_.write({.kind = Kind::kJoining});
  CKPT_ASSIGN(const client::Epoch epoch, member_->join());
  epoch_ = epoch.epoch;
  events_.write({.kind = Kind::kConnecting, .epoch = epoch_});
  report_snapshots();  // an epoch opens when all snapshots of the one before are settled
  Result<std::unique_ptr<Comm>> comm = member_->connect(epoch, *device_);
  if (!comm.ok()) {
    if (!is_group_loss(comm.error())) return comm.error();
    return leave_group(nullptr, comm.error().message);
  }
  snapshotter_.emplace(member_->session(), units_, snapshot_plan(units_, placement_), options_.rank,
                       link_.get());
  Result<Ending> ending = Ending::kSaved;
  const Status restored = restore(epoch);
  if (!restored.ok()) {
    if (!is_group_loss(restored.error()) || !member_->epoch_over()) return restored.error();
    ending = leave_group(comm->get(), restored.error().message);
  } else {
    watch_.emplace(*member_, **comm);
    ending = train(**comm);
    watch_.reset();
  }
  return ending;
}

Status RankRun::restore(const client::Epoch& epoch) {
  RankEvent event{.kind = Kind::kTraining, .epoch = epoch.epoch, .lineage = epoch.lineage};
  if (epoch.resume) {
    events_.write({.kind = Kind::kRestoring, .epoch = epoch.epoch});
    CKPT_ASSIGN(
        const RestoreSummary summary,
        restore_units(member_->session(), options_.run, *epoch.resume, units_,
                      units_of_rank(units_, placement_, options_.rank), *memory_, link_.get()));
    model_->parameters_changed();
    CKPT_TRY(take_over(*epoch.resume));
    for (const std::string& note : summary.notes) events_.log(where() + ": " + note);
    event.resumed = true;
    event.bytes_memory = summary.bytes_memory;
    event.bytes_disk = summary.bytes_disk;
    event.stale_units = summary.stale_units;
  } else {
    model_->initialise(options_.config.seed);
    progress_ = {};
  }
  saved_step_ = progress_.step;
  snapshot_due_ = false;
  failed_snapshot_ = 0;
  event.step = progress_.step;
  events_.write(event);
  return {};
}

// Takes the restored trainer unit over, if it belongs to this run as it is configured now.
Status RankRun::take_over(const client::ViewPoint& view) {
  const ModelConfig& shape = options_.config.model;
  const std::string name = fmt::format("run {} step {}", options_.run, view.step);
  Result<TrainerState> state = decode_trainer_state(trainer_unit_, shape.layers, shape.experts);
  if (!state.ok()) return make_error(state.error().code, "{} {}", name, state.error().message);
  if (state->progress.step != view.step) {
    return make_error(ErrorCode::kCorrupt, "{} unit trainer: says it is of step {}", name,
                      state->progress.step);
  }
  CKPT_ASSIGN(const TrainConfig saved, parse_train_config(state->config, name + " unit trainer"));
  const std::string differs = difference(saved, options_.config);
  if (!differs.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{} was trained with {}", name, differs);
  }
  if (state->corpus_crc32c != corpus_->crc32c() && options_.rank == 0) {
    events_.log(
        fmt::format("{}: the data has changed since ({} bytes then, {} now); the run goes"
                    " on, but not as it would have",
                    name, state->corpus_bytes, corpus_->bytes()));
  }
  progress_ = std::move(state->progress);
  return {};
}

RankRun::Ending RankRun::leave_group(Comm* comm, const std::string& reason) {
  const std::string why = member_->epoch_over().value_or(reason);
  // The others notice by their connections to this rank, and come along.
  if (comm != nullptr) comm->abort(why);
  events_.write({.kind = Kind::kGroupLost, .epoch = epoch_, .step = progress_.step, .text = why});
  member_->await_epoch_end(kEpochEndTimeoutMs);
  return Ending::kGroupLost;
}

Result<RankRun::Boundary> RankRun::meet(Comm& comm) {
  member_->poll();
  CKPT_TRY(snapshotter_->poll());
  report_snapshots();
  std::vector<int64_t> mine = {stop_.load() ? 1 : 0, member_->connected() ? 0 : 1,
                               static_cast<int64_t>(failed_snapshot_)};
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_max(std::span(mine)));
  }
  failed_snapshot_ = 0;
  return Boundary{mine[0] != 0, mine[1] != 0, static_cast<uint64_t>(mine[2])};
}

Result<RankRun::Ending> RankRun::train(Comm& comm) {
  const Snapshotter::BackPressure usual{
      .policy = options_.skip_when_out_of_slabs ? CKPT_SLABS_SKIP : CKPT_SLABS_WAIT};
  for (;;) {
    const Result<Boundary> boundary = meet(comm);
    if (const auto over = member_->epoch_over()) return leave_group(&comm, *over);
    if (!boundary.ok()) {
      if (!is_group_loss(boundary.error())) return boundary.error();
      return leave_group(&comm, boundary.error().message);
    }
    if (boundary->failed_snapshot != 0) {
      snapshotter_->abandon(boundary->failed_snapshot, "another rank could not contribute");
      // Unless a newer one is on its way, the state is as unsaved as before.
      if (saved_step_ == boundary->failed_snapshot) saved_step_ = 0;
    }
    const bool last = boundary->stop || progress_.step >= options_.steps;
    if (last) return save_last(comm);
    const uint64_t every = options_.checkpoint_every;
    if (every != 0 && progress_.step % every == 0 && progress_.step != saved_step_ &&
        progress_.step != 0) {
      snapshot_due_ = true;
    }
    // A failure is reported; training goes on.
    if (snapshot_due_ && !boundary->away) (void)snapshot(0, usual);
    const Status stepped = one_step(comm);
    if (!stepped.ok()) {
      if (!is_group_loss(stepped.error())) return stepped.error();
      return leave_group(&comm, stepped.error().message);
    }
  }
}

Status RankRun::one_step(Comm& comm) {
  const auto begin = Clock::now();
  const auto before_update = [&](uint64_t step) -> Status {
    const auto& at = options_.kill_at;
    if (std::find(at.begin(), at.end(), step) != at.end()) {
      events_.write({.kind = Kind::kDying, .step = step});
      ::kill(::getpid(), SIGKILL);
    }
    return snapshotter_->state_free();
  };
  std::optional<EpochWatch::Loan> loan(std::in_place, *watch_);
  CKPT_ASSIGN(const StepResult result, trainer_->step(comm, *model_, progress_, before_update));
  loan.reset();
  last_loss_ = result.loss;
  events_.write({.kind = Kind::kStep,
                 .step = result.step,
                 .loss_bits = std::bit_cast<uint32_t>(result.loss),
                 .applied = result.applied,
                 .ms = ms_since(begin) + stall_ms_,
                 .stall_ms = stall_ms_,
                 .learning_rate = result.learning_rate,
                 .gradient_norm = result.gradient_norm});
  stall_ms_ = 0;
  if (progress_.skipped_in_a_row < kSkippedInARowMax) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: the loss or the gradient was not finite for {} steps in a row; try a lower"
                    " --lr from an older checkpoint",
                    where(), kSkippedInARowMax);
}

Status RankRun::snapshot(uint32_t attempt, const Snapshotter::BackPressure& pressure) {
  const auto begin = Clock::now();
  TrainerState state{.progress = progress_,
                     .config = to_json(options_.config),
                     .corpus_bytes = corpus_->bytes(),
                     .corpus_crc32c = corpus_->crc32c(),
                     .placement = placement_};
  Result<std::vector<std::byte>> unit = encode(state);
  Status taken = unit.ok() ? Status() : Status(unit.error());
  if (unit.ok()) {
    std::copy(unit->begin(), unit->end(), trainer_unit_.begin());
    std::vector<client::Metric> metrics;
    if (options_.rank == 0) {
      metrics = {{"loss", last_loss_}, {"tokens", static_cast<double>(progress_.tokens)}};
    }
    taken = snapshotter_->take(progress_.step, attempt, *memory_, metrics, pressure);
  }
  snapshot_due_ = false;
  saved_step_ = progress_.step;
  stall_ms_ += ms_since(begin);
  if (taken.ok()) return taken;
  failed_snapshot_ = progress_.step;
  report_snapshot(
      {.step = progress_.step, .reason = taken.error().message, .stall_ms = ms_since(begin)});
  return taken;
}

// The last checkpoint: the run ends only when it is durable. All ranks take the same turns, because
// each attempt begins and ends with what they agree on.
Result<RankRun::Ending> RankRun::save_last(Comm& comm) {
  if (saved_step_ == progress_.step) return Ending::kSaved;  // nothing was done since the resume
  // Nobody trains any more: there is nothing to wait less for.
  const Snapshotter::BackPressure patient{.policy = CKPT_SLABS_WAIT,
                                          .wait_ms_max = options_.save_timeout_ms};
  Status failed;
  for (uint32_t attempt = 0; attempt < kLastSnapshotAttempts; ++attempt) {
    events_.write({.kind = Kind::kSaving, .epoch = epoch_, .step = progress_.step});
    member_->await_connection(options_.save_timeout_ms / kLastSnapshotAttempts);
    failed = snapshot(attempt, patient);
    const Result<Boundary> boundary = meet(comm);
    if (!boundary.ok()) return leave_group(&comm, boundary.error().message);
    if (boundary->failed_snapshot != 0) {
      snapshotter_->abandon(progress_.step, "another rank could not contribute");
      if (failed.ok()) {
        failed = make_error(ErrorCode::kAborted, "{}: another rank could not contribute", where());
      }
      continue;
    }
    const Result<SnapshotOutcome> saved =
        snapshotter_->wait(progress_.step, options_.save_timeout_ms);
    if (saved.ok()) {
      report_snapshot(*saved);
      // Earlier ones may still be on their way: their end belongs to the run's history, too.
      for (const SnapshotOutcome& outcome : snapshotter_->drain(options_.save_timeout_ms)) {
        report_snapshot(outcome);
      }
      return Ending::kSaved;
    }
    if (const auto over = member_->epoch_over()) return leave_group(&comm, *over);
    failed = saved.error();
  }
  return make_error(failed.error().code, "{}: the last checkpoint could not be saved: {}", where(),
                    failed.error().message);
}

void RankRun::report_snapshots() {
  if (!snapshotter_) return;
  for (const SnapshotOutcome& outcome : snapshotter_->settled()) report_snapshot(outcome);
}

void RankRun::report_snapshot(const SnapshotOutcome& outcome) {
  events_.write({.kind = Kind::kSnapshot,
                 .step = outcome.step,
                 .text = outcome.reason,
                 .stall_ms = outcome.stall_ms,
                 .durable = outcome.durable,
                 .bytes = outcome.bytes,
                 .durable_ms = outcome.durable_ms});
}

int run_rank(const RankOptions& options, EventWriter& events, const std::atomic<bool>& stop) {
  RankRun run(options, events, stop);
  const Status status = run.run();
  if (status.ok()) return 0;
  events.write({.kind = Kind::kFatal,
                .text = status.error().message,
                .code = static_cast<int>(status.error().code)});
  return ckpt::exit_code_for(status.error().code);
}

}  // namespace moetrain
