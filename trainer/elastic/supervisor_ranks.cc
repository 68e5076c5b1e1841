// The supervisor's part that knows ranks: starting them, their events, their ends.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/base/counted.h"
#include "formats/base/json_dump.h"
#include "formats/base/parse.h"
#include "trainer/elastic/supervisor_impl.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using Kind = RankEvent::Kind;

namespace {

// For a rank that is started anew to reach a ckptd that may be starting anew itself.
constexpr uint32_t kReopenTimeoutMs = 120'000;
// A beat that is late is no silence yet.
constexpr uint32_t kBeatsInTimeout = 5;

std::string metrics_line(const RankEvent& event, uint64_t tokens) {
  nlohmann::ordered_json line;
  const float loss = std::bit_cast<float>(event.loss_bits);
  line["step"] = event.step;
  line["loss"] = std::isfinite(loss) ? nlohmann::ordered_json(loss) : nullptr;
  line["loss_bits"] = fmt::format("{:08x}", event.loss_bits);
  line["tokens"] = tokens;
  line["ms"] = event.ms;
  line["stall_ms"] = event.stall_ms;
  line["learning_rate"] = event.learning_rate;
  line["gradient_norm"] =
      std::isfinite(event.gradient_norm) ? nlohmann::ordered_json(event.gradient_norm) : nullptr;
  line["applied"] = event.applied;
  line["plt"] = event.plt;
  line["plt_rollback"] = event.plt_rollback;
  line["busiest_tokens"] = event.busiest_rows;
  line["max_over_mean"] = event.max_over_mean;
  // What PLT follows from (trainer/README.md).
  if (event.resumed_at >= 0) {
    line["resumed_at"] = event.resumed_at;
    line["resumed_versions"] = event.resumed_versions;
  }
  if (!event.rolled_back.empty()) {
    line["rolled_back"] = event.rolled_back;
    line["versions"] = event.rolled_back_to;
  }
  line["routed"] = event.routed;
  return ckpt::base::dump_json(line);
}

std::string snapshot_line(const RankEvent& event) {
  const double mean = event.rank_bytes_mean;
  nlohmann::ordered_json line{{"snapshot", event.step}, {"experts", event.experts}};
  if (!event.memory_experts.empty()) line["memory_experts"] = event.memory_experts;
  line["bytes"] = event.bytes;
  if (event.bytes_kept > 0) line["bytes_kept"] = event.bytes_kept;
  line["rank_bytes_max"] = event.rank_bytes_max;
  line["rank_bytes_mean"] = mean;
  line["rank_bytes_max_over_mean"] =
      mean > 0 ? static_cast<double>(event.rank_bytes_max) / mean : 1;
  return ckpt::base::dump_json(line);
}

// What has happened to the rank by this step: what was asked for first.
void forget_first(std::vector<RankAt>& asked, const RankEvent& event) {
  auto first = asked.end();
  for (auto at = asked.begin(); at != asked.end(); ++at) {
    if (at->rank != event.rank || at->step > event.step) continue;
    if (first == asked.end() || at->step < first->step) first = at;
  }
  if (first != asked.end()) asked.erase(first);
}

// Of ranks that die together one counts.
std::string holders_text(uint32_t count, bool of_nodes) {
  const char* more = count == 1 ? "" : "s";
  return of_nodes ? fmt::format("each expert on {} node{}", count, more)
                  : fmt::format("{} holder{} of each expert", count, more);
}

std::string replan_line(const RankEvent& event) {
  const nlohmann::ordered_json line{{"replan", event.step},
                                    {"moved", event.moved},
                                    {"max_over_mean_before", event.balance_before},
                                    {"max_over_mean_after", event.balance_after},
                                    {"gain_ms", event.gain_ms},
                                    {"cost_ms", event.cost_ms},
                                    {"bytes", event.bytes_moved},
                                    {"plan_ms", event.plan_ms},
                                    {"migrate_ms", event.migrate_ms}};
  return ckpt::base::dump_json(line);
}

}  // namespace

// The first ranks have the GPUs of their numbers. Whoever joins takes one that a lost rank, or one
// that has left, has no use for any more: on another rank's the group would have to do without
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
  RankOptions told = options.rank;
  told.rank = rank;
  told.gpu = gpu_for(rank);
  told.heartbeat_ms = options.heartbeat_timeout_ms / kBeatsInTimeout;
  for (const RankAt& kill : options.kills) {
    if (kill.rank == rank) told.kill_at.push_back(kill.step);
  }
  for (const RankAt& leave : options.leaves) {
    if (leave.rank == rank) told.leave_after.push_back(leave.step);
  }
  for (const PhaseKill& kill : options.phase_kills) {
    if (kill.rank == rank) told.kill_in.push_back(kill.phase);
  }
  // The others may be on their way to an older step than the run was to resume: who starts from now
  // on goes along with them.
  if (epoch_opened && told.resume != CKPT_RESUME_START) told.resume = CKPT_RESUME_CONTINUE;
  if (epoch_seen) {
    told.resume = CKPT_RESUME_CONTINUE;
    told.open_timeout_ms = kReopenTimeoutMs;
    told.failures_known = failures_known;
    told.training_ms_known = training_ms_known;
  }
  CKPT_ASSIGN(Pipe pipe, make_pipe());
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  Process::Options process;
  process.arguments = {this_program(), "rank", "--options", to_json(told)};
  // One thread of BLAS: the ranks share the cores, and the order of summation stays fixed.
  process.environment = {"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"};
  process.descriptors = {{pipe.write.get(), kEventFd}};
  CKPT_ASSIGN(Process started, Process::start(process));
  Slot& slot = slots[rank];
  slot = Slot{
      .process = std::move(started), .events = std::move(pipe.read), .reader = {}, .gpu = told.gpu};
  watchdog->started(rank, monotonic_ns());
  return {};
}

void Supervisor::Impl::read_events(uint32_t rank) {
  Slot& slot = slots[rank];
  char bytes[65536];
  for (;;) {
    const ssize_t n = ::read(slot.events.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) slot.events.reset();  // the pipe's other end is gone
    if (n <= 0) break;
    slot.reader.append({bytes, static_cast<size_t>(n)});
  }
  for (RankEvent& event : slot.reader.take()) {
    event.rank = rank;
    handle(event);
  }
}

void Supervisor::Impl::handle(const RankEvent& event) {
  recorder->add(event);
  watchdog->add(event);
  saves->add(event);
  if (event.kind == Kind::kAlive) return;
  if (events.is_open()) record(events, to_line(event));
  switch (event.kind) {
    case Kind::kTraining:
      slots[event.rank].trained = true;
      failures_known = std::max(failures_known, event.failures);
      training_ms_known = std::max(training_ms_known, event.training_ms);
      return say_training(event);
    case Kind::kJoining:
      // A stop that was asked for before this process could listen to it.
      if ((stop_signal || !limit_reached.empty()) && !slots[event.rank].joined) {
        slots[event.rank].process->signal(stop_rank_signal());
      }
      slots[event.rank].joined = true;
      return;
    case Kind::kConnecting:
      epoch_opened = true;
      slots[event.rank].in_epoch = true;
      slots[event.rank].epoch = event.epoch;
      return;
    case Kind::kAlive:
    case Kind::kRestoring:
    case Kind::kSaving:
    case Kind::kPacing:
    case Kind::kPostponed:
    case Kind::kSnapshot:  // SaveMonitor tells of these
    case Kind::kNotice:    // the supervisor's own
      return;
    case Kind::kReplanned:
      return say_replanned(event);
    case Kind::kTaking:
      if (metrics.is_open()) record(metrics, snapshot_line(event) + '\n');
      return;
    case Kind::kStep:
      return handle_step(event);
    case Kind::kDying:
      return forget_kill(event);
    case Kind::kRegrouping:
    case Kind::kGroupLost:
      slots[event.rank].in_epoch = false;
      return;
    case Kind::kLog:
      return say(fmt::format("rank {}: {}", event.rank, event.text));
    case Kind::kSaved:
      slots[event.rank].saved = true;
      stopped_because = event.text;
      complete = true;
      return;
    case Kind::kDrained:
      return rank_left(event);
    case Kind::kFatal:
      return rank_gave_up(event);
  }
}

void Supervisor::Impl::rank_left(const RankEvent& event) {
  slots[event.rank].drained = true;
  forget_first(options.leaves, event);
  say(fmt::format("rank {} has left after step {}, as it was asked to", event.rank, event.step));
}

// A process that cannot join costs those nothing that train without it.
void Supervisor::Impl::rank_gave_up(const RankEvent& event) {
  Slot& slot = slots[event.rank];
  if (event.rank < options.rank.ranks || slot.trained || !anybody_has_state()) {
    return give_up({static_cast<ErrorCode>(event.code), event.text});
  }
  slot.given_up = true;
  say(fmt::format("rank {} could not join, the others go on without it: {}", event.rank,
                  event.text));
}

void Supervisor::Impl::say_training(const RankEvent& event) {
  epoch_seen = true;
  if (event.goes_on && event.epoch > went_on_epoch) {
    went_on_epoch = event.epoch;
    const uint32_t sequences = options.rank.config.batch;
    say(fmt::format("going on after step {} with {} rank{} (epoch {}, {}){}", event.step,
                    event.group, event.group == 1 ? "" : "s", event.epoch,
                    holders_text(event.effective_replicas, !options.rank.nodes.empty()),
                    event.group <= sequences
                        ? ""
                        : fmt::format("; {} of them have no sequence: a micro-batch has {}",
                                      event.group - sequences, sequences)));
  }
  if (event.rank == 0 && event.resumed) {
    say(fmt::format("resumed at step {} ({}, epoch {}, lineage {})", event.step,
                    ckpt::base::counted(event.group, "rank"), event.epoch, event.lineage));
  }
}

void Supervisor::Impl::say_replanned(const RankEvent& event) {
  if (metrics.is_open()) record(metrics, replan_line(event) + '\n');
  if (!event.moved) return;
  say(
      fmt::format("step {}: {} of experts moved in {:.1f} ms: the busiest rank had {:.2f} of the "
                  "mean, will have {:.2f}",
                  event.step, ckpt::base::format_size(event.bytes_moved), event.migrate_ms,
                  event.balance_before, event.balance_after));
}

// Asked for once: the next process of this rank does not do it again.
void Supervisor::Impl::forget_kill(const RankEvent& event) {
  if (event.text.empty()) return forget_first(options.kills, event);
  const auto kill = std::ranges::find_if(options.phase_kills, [&](const PhaseKill& one) {
    return one.rank == event.rank && one.phase == event.text;
  });
  if (kill != options.phase_kills.end()) options.phase_kills.erase(kill);
}

void Supervisor::Impl::handle_step(const RankEvent& event) {
  if (!recorder->is_first_of_step(event)) return;
  restarts_in_a_row = 0;
  if (!event.applied) {
    say(fmt::format("step {}: skipped, the loss or the gradient is not finite", event.step));
  }
  if (metrics.is_open()) {
    record(metrics, metrics_line(event, options.rank.config.tokens_per_step()) + '\n');
  }
  bar->update(event.step, fmt::format("loss {:.4f}", std::bit_cast<float>(event.loss_bits)));
  start_joiners(event.step);
  if (std::erase(options.daemon_kills, event.step) > 0 && daemon) {
    say(fmt::format("step {}: killing ckptd, as asked", event.step));
    daemon->kill();
  }
}

void Supervisor::Impl::rank_ended(uint32_t rank, const ProcessEnd& end) {
  Slot& slot = slots[rank];
  if (slot.events.valid()) read_events(rank);  // its last words
  slot.process.reset();
  slot.events.reset();
  watchdog->ended(rank);
  if (slot.saved || slot.drained || slot.given_up || complete || failure) return;
  if (stop_signal && !anybody_has_state()) {
    return give_up(make_error(ErrorCode::kAborted,
                              "rank {} ended with {} before the last step was saved", rank,
                              end.text()));
  }
  recorder->rank_died(rank, monotonic_ns());
  const std::string lost =
      fmt::format("rank {} is lost at step {} ({})", rank, recorder->step() + 1, end.text());
  if (anybody_has_state()) return say(lost + "; the others go on");
  // A first epoch needs all its ranks: until it trains, the lost one is started again.
  if (options.rank.elastic && epoch_seen) return start_all_again(lost);
  if (++restarts_in_a_row > options.restarts_max) {
    return give_up(make_error(ErrorCode::kAborted,
                              "{}, after {} restarts in a row without a completed step", lost,
                              options.restarts_max));
  }
  say(lost + "; starting it again");
  const Status started = start_rank(rank);
  if (!started.ok()) give_up(started.error());
}

// Is a rank of an elastic run there to go on? One that was left behind is not: its state is old.
bool Supervisor::Impl::anybody_has_state() const {
  return options.rank.elastic && std::any_of(slots.begin(), slots.end(), [this](const Slot& slot) {
           return slot.process && slot.trained && slot.epoch >= went_on_epoch;
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
      if (!started.ok()) return give_up(started.error());
    }
  }
}

// Nobody is left to go on: the run resumes from its newest checkpoint, with the ranks that it began
// with. Those that run wait for the others; joiners join again.
void Supervisor::Impl::start_all_again(const std::string& lost) {
  if (++restarts_in_a_row > options.restarts_max) {
    return give_up(make_error(ErrorCode::kAborted,
                              "{}, the last one, after {} restarts in a row without a completed "
                              "step",
                              lost, options.restarts_max));
  }
  say(lost + ", the last one; starting all again");
  uint32_t joiners = 0;
  for (uint32_t rank = options.rank.ranks; rank < slots.size(); ++rank) {
    if (!slots[rank].process) continue;
    slots[rank].given_up = true;
    slots[rank].process->signal(SIGKILL);
    ++joiners;
  }
  if (joiners > 0) options.joins.push_back({.count = joiners, .step = 0});
  for (uint32_t rank = 0; rank < options.rank.ranks; ++rank) {
    if (slots[rank].process) continue;
    const Status started = start_rank(rank);
    if (!started.ok()) return give_up(started.error());
  }
}

void Supervisor::Impl::kill_hanging_ranks() {
  for (const Watchdog::Hang& hang : watchdog->hanging(monotonic_ns())) {
    say(fmt::format("rank {} hangs, {}; killing it", hang.rank, hang.what));
    recorder->rank_hangs(hang.rank);
    if (slots[hang.rank].process) slots[hang.rank].process->signal(SIGKILL);
  }
}

}  // namespace moetrain
