// The supervisor's part that handles ranks: their start, their events, their ends.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "formats/base/counted.h"
#include "formats/base/parse.h"
#include "trainer/elastic/metrics_lines.h"
#include "trainer/elastic/supervisor_impl.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Timeout for a new rank to reach ckptd, which may be restarting, too.
constexpr uint32_t kReopenTimeoutMs = 120'000;
// Heartbeats per timeout: one late heartbeat is no silence.
constexpr uint32_t kBeatsInTimeout = 5;

// Erases the earliest request for this rank that is due at its step.
void forget_first(std::vector<RankAt>& asked, const EventHeader& at) {
  auto first = asked.end();
  for (auto one = asked.begin(); one != asked.end(); ++one) {
    if (one->rank != at.rank || one->step > at.step) continue;
    if (first == asked.end() || one->step < first->step) first = one;
  }
  if (first != asked.end()) asked.erase(first);
}

// Ranks of one node fail together: then the number counts nodes.
std::string holders_text(uint32_t count, bool of_nodes) {
  const char* more = count == 1 ? "" : "s";
  return of_nodes ? fmt::format("each expert on {} node{}", count, more)
                  : fmt::format("{} holder{} of each expert", count, more);
}

// The step and epoch at which survivors of a loss, or of another change, continue.
std::string continued_text(const EventHeader& at, const TrainingEvent& training,
                           const RankOptions& options) {
  const std::string ranks = ckpt::base::counted(training.group, "rank");
  if (training.resumed) {
    return fmt::format("all {} return to step {} of lineage {} (epoch {})", ranks, at.step,
                       training.view_lineage, at.epoch);
  }
  if (!options.experts_sharded()) {
    return fmt::format("continuing after step {} with {} (epoch {}, {})", at.step, ranks, at.epoch,
                       holders_text(training.effective_replicas, !options.nodes.empty()));
  }
  if (at.step == 0) {
    return fmt::format("all {} begin again with step 1: no step is saved (epoch {})", ranks,
                       at.epoch);
  }
  return fmt::format("continuing after step {} with {} (epoch {})", at.step, ranks, at.epoch);
}

}  // namespace

// The first ranks have the GPUs of their own numbers. A joining rank takes the GPU of a lost rank,
// or of one that has left: if two ranks shared a GPU, the group would have to work without
// NCCL.
uint32_t Supervisor::Impl::gpu_for(uint32_t rank) const {
  if (rank < options.rank.ranks) return rank;
  const auto is_taken = [this](uint32_t gpu) {
    return std::ranges::any_of(slots,
                               [gpu](const Slot& slot) { return slot.process && slot.gpu == gpu; });
  };
  uint32_t gpu = 0;
  while (is_taken(gpu)) ++gpu;
  return gpu;
}

Status Supervisor::Impl::start_rank(uint32_t rank) {
  RankOptions rank_options = options.rank;
  rank_options.rank = rank;
  rank_options.gpu = gpu_for(rank);
  rank_options.heartbeat_ms = options.heartbeat_timeout_ms / kBeatsInTimeout;
  for (const RankAt& kill : options.kills) {
    if (kill.rank == rank) rank_options.kill_at.push_back(kill.step);
  }
  for (const RankAt& leave : options.leaves) {
    if (leave.rank == rank) rank_options.leave_after.push_back(leave.step);
  }
  for (const PhaseKill& kill : options.phase_kills) {
    if (kill.rank == rank) rank_options.kill_in.push_back(kill.phase);
  }
  // The others may be resuming at an older step than the run was asked to resume at: new processes
  // follow them.
  if (epoch_opened && rank_options.resume != CKPT_RESUME_START) {
    rank_options.resume = CKPT_RESUME_CONTINUE;
  }
  if (epoch_seen) {
    rank_options.resume = CKPT_RESUME_CONTINUE;
    rank_options.open_timeout_ms = kReopenTimeoutMs;
    rank_options.trace_schedule = false;  // the run's first steps are over, or others trace them
    rank_options.failures_known = failures_known;
    rank_options.training_ms_known = training_ms_known;
  }
  CKPT_ASSIGN(Pipe pipe, make_pipe());
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  Process::Options process;
  process.arguments = {this_program(), "rank", "--options", to_json(rank_options)};
  // One BLAS thread: the ranks share the cores, and the order of summation stays fixed.
  process.environment = {"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"};
  process.descriptors = {{pipe.write.get(), kEventFd}};
  CKPT_ASSIGN(Process started, Process::start(process));
  Slot& slot = slots[rank];
  slot = Slot{.process = std::move(started),
              .events = std::move(pipe.read),
              .reader = {},
              .gpu = rank_options.gpu};
  watchdog->started(rank, monotonic_ns());
  return {};
}

void Supervisor::Impl::read_events(uint32_t rank) {
  Slot& slot = slots[rank];
  char bytes[65536];
  for (;;) {
    const ssize_t n = ::read(slot.events.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) slot.events.reset();  // the other end of the pipe is closed
    if (n <= 0) break;
    slot.reader.append({bytes, static_cast<size_t>(n)});
  }
  for (RankEvent& event : slot.reader.take()) {
    event.header.rank = rank;
    handle(event);
  }
}

void Supervisor::Impl::handle(const RankEvent& event) {
  recorder->add(event);
  watchdog->add(event);
  saves->add(event);
  if (event.as<AliveEvent>() != nullptr) return;
  if (events.is_open()) record(events, to_line(event));
  std::visit([&](const auto& body) { on(event.header, body); }, event.body);
}

void Supervisor::Impl::on(const EventHeader& at, const JoiningEvent& /*joining*/) {
  Slot& slot = slots[at.rank];
  // A stop requested before this process could handle the signal.
  if (outcome.is_stopping() && !slot.joined) {
    slot.process->signal(stop_rank_signal());
  }
  slot.joined = true;
}

void Supervisor::Impl::on(const EventHeader& at, const ConnectingEvent& /*connecting*/) {
  epoch_opened = true;
  slots[at.rank].in_epoch = true;
  slots[at.rank].epoch = at.epoch;
}

void Supervisor::Impl::on(const EventHeader& at, const TrainingEvent& training) {
  slots[at.rank].trained = true;
  failures_known = std::max(failures_known, training.failures);
  training_ms_known = std::max(training_ms_known, training.training_ms);
  epoch_seen = true;
  const uint32_t group = training.group;
  if (training.survivors_continue && at.epoch > continued_epoch) {
    continued_epoch = at.epoch;
    const uint32_t sequences = options.rank.config.batch;
    say(continued_text(at, training, options.rank) +
        (group <= sequences ? ""
                            : fmt::format("; {} of them have no sequence: a micro-batch has {}",
                                          group - sequences, sequences)));
  }
  // Survivors may have another rank 0.
  if (training.resumed && !training.survivors_continue && at.epoch > resumed_epoch) {
    resumed_epoch = at.epoch;
    say(fmt::format("resumed at step {} ({}, epoch {}, lineage {})", at.step,
                    ckpt::base::counted(group, "rank"), at.epoch, training.lineage));
  }
}

void Supervisor::Impl::on(const EventHeader& at, const StepEvent& step) {
  if (!recorder->is_first_of_step(at)) return;
  restarts_in_a_row = 0;
  if (!step.applied) {
    say(fmt::format("step {}: skipped, the loss or the gradient is not finite", at.step));
  }
  if (metrics.is_open()) {
    record(metrics, step_metrics(at, step, options.rank.config.tokens_per_step()) + '\n');
  }
  bar->update(at.step, fmt::format("loss {:.4f}", std::bit_cast<float>(step.loss_bits)));
  start_joiners(at.step);
  if (std::erase(options.daemon_kills, at.step) > 0 && daemon) {
    say(fmt::format("step {}: killing ckptd, as asked", at.step));
    daemon->kill();
  }
}

void Supervisor::Impl::on(const EventHeader& at, const TakingEvent& taking) {
  if (metrics.is_open()) record(metrics, snapshot_metrics(at, taking) + '\n');
}

void Supervisor::Impl::on(const EventHeader& at, const ReplannedEvent& replanned) {
  if (metrics.is_open()) record(metrics, replan_metrics(at, replanned) + '\n');
  if (!replanned.moved) return;
  const Relayout& relayout = replanned.relayout;
  say(
      fmt::format("step {}: {} of experts moved in {:.1f} ms: the busiest rank had {:.2f} of the "
                  "mean, will have {:.2f}",
                  at.step, ckpt::base::format_size(relayout.bytes_moved), relayout.migrate_ms,
                  replanned.balance_before, replanned.balance_after));
}

void Supervisor::Impl::on(const EventHeader& at, const DrainedEvent& /*drained*/) {
  slots[at.rank].drained = true;
  forget_first(options.leaves, at);
  say(fmt::format("rank {} has left after step {}, as it was asked to", at.rank, at.step));
}

// The next process of this rank does not kill itself again.
void Supervisor::Impl::on(const EventHeader& at, const DyingEvent& dying) {
  if (dying.phase.empty()) return forget_first(options.kills, at);
  const auto kill = std::ranges::find_if(options.phase_kills, [&](const PhaseKill& one) {
    return one.rank == at.rank && one.phase == dying.phase;
  });
  if (kill != options.phase_kills.end()) options.phase_kills.erase(kill);
}

void Supervisor::Impl::on(const EventHeader& at, const LogEvent& log) {
  say(fmt::format("rank {}: {}", at.rank, log.text));
}

void Supervisor::Impl::on(const EventHeader& at, const SavedEvent& saved) {
  slots[at.rank].saved = true;
  outcome.saved_last(saved.reason);
}

// If a joining rank fails to join, the ranks that train without it lose nothing.
void Supervisor::Impl::on(const EventHeader& at, const FatalEvent& fatal) {
  Slot& slot = slots[at.rank];
  if (at.rank < options.rank.ranks || slot.trained || !any_rank_has_state()) {
    return fail_run({static_cast<ErrorCode>(fatal.code), fatal.reason});
  }
  slot.abandoned = true;
  say(fmt::format("rank {} could not join, the others continue without it: {}", at.rank,
                  fatal.reason));
}

void Supervisor::Impl::rank_ended(uint32_t rank, const ProcessEnd& end) {
  Slot& slot = slots[rank];
  if (slot.events.valid()) read_events(rank);  // its last events
  slot.process.reset();
  slot.events.reset();
  watchdog->ended(rank);
  if (slot.saved || slot.drained || slot.abandoned) return;
  if (outcome.complete() || outcome.failure()) return;
  if (outcome.stop_signal() && !any_rank_has_state()) {
    return fail_run(make_error(ErrorCode::kAborted,
                               "rank {} ended with {} before the last step was saved", rank,
                               end.text()));
  }
  const uint64_t at_step = recorder->rank_died(rank, monotonic_ns());
  const std::string lost =
      fmt::format("rank {} is lost at step {} ({})", rank, at_step, end.text());
  if (any_rank_has_state()) return say(lost + "; the others continue");
  // A first epoch needs all its ranks: until it trains, a lost rank is restarted.
  if (options.rank.elastic && epoch_seen) return restart_ranks(lost);
  if (++restarts_in_a_row > options.restarts_max) {
    return fail_run(make_error(ErrorCode::kAborted,
                               "{}, after {} restarts in a row without a completed step", lost,
                               options.restarts_max));
  }
  say(lost + "; starting it again");
  const Status started = start_rank(rank);
  if (!started.ok()) fail_run(started.error());
}

// True if a rank of an elastic run can continue. A rank left behind cannot: its state is old.
bool Supervisor::Impl::any_rank_has_state() const {
  return options.rank.elastic && std::any_of(slots.begin(), slots.end(), [this](const Slot& slot) {
           return slot.process && slot.trained && slot.epoch >= continued_epoch;
         });
}

void Supervisor::Impl::start_joiners(uint64_t step) {
  for (RankJoin& join : options.joins) {
    if (join.step > step) continue;
    for (; join.count > 0; --join.count) {
      const auto rank = static_cast<uint32_t>(slots.size());
      slots.emplace_back();
      watchdog->add_rank();
      say(fmt::format("step {}: starting rank {}, as asked", step, rank));
      const Status started = start_rank(rank);
      if (!started.ok()) return fail_run(started.error());
    }
  }
}

// No survivor is left: the run resumes from its newest checkpoint, with its initial ranks. Running
// ones wait for the others; joined ranks join again.
void Supervisor::Impl::restart_ranks(const std::string& lost) {
  if (++restarts_in_a_row > options.restarts_max) {
    return fail_run(make_error(ErrorCode::kAborted,
                               "{}, the last one, after {} restarts in a row without a completed "
                               "step",
                               lost, options.restarts_max));
  }
  say(lost + ", the last one; starting all again");
  uint32_t joiners = 0;
  for (uint32_t rank = options.rank.ranks; rank < slots.size(); ++rank) {
    if (!slots[rank].process) continue;
    slots[rank].abandoned = true;
    slots[rank].process->signal(SIGKILL);
    ++joiners;
  }
  if (joiners > 0) options.joins.push_back({.count = joiners, .step = 0});
  for (uint32_t rank = 0; rank < options.rank.ranks; ++rank) {
    if (slots[rank].process) continue;
    const Status started = start_rank(rank);
    if (!started.ok()) return fail_run(started.error());
  }
}

void Supervisor::Impl::kill_hanging_ranks() {
  for (const Watchdog::Hang& hang : watchdog->hanging(monotonic_ns())) {
    say(fmt::format("rank {} hangs, {}; killing it", hang.rank, hang.reason));
    recorder->rank_hangs(hang.rank);
    if (slots[hang.rank].process) slots[hang.rank].process->signal(SIGKILL);
  }
}

}  // namespace moetrain
