#include "trainer/elastic/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace moetrain {

namespace {

// Nearest rank; 0 without values.
double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

}  // namespace

Recorder::Recorder(uint32_t ranks, uint64_t tokens_per_step)
    : ranks_(ranks), tokens_per_step_(tokens_per_step), failure_log_(ranks) {}

void Recorder::add(const RankEvent& event) {
  std::visit([&](const auto& body) { on(event.header, body); }, event.body);
  failure_log_.add(event);
}

void Recorder::on(const EventHeader& /*at*/, const PacingEvent& pacing) {
  pace_ = {pacing.pace.checkpoint_every, pacing.pace.experts_per_checkpoint,
           pacing.pace.experts_per_snapshot, pacing.reason};
}

void Recorder::on(const EventHeader& at, const TrainingEvent& training) {
  plt_ = training.relayout.plt;
  plt_rollback_ = training.relayout.plt_rollback;
  lost_ = training.relayout.lost;
  stalls_.trains(at.epoch, training.survivors_continue);
  if (at.epoch > history_epoch_) begin_history(at, training);
  stragglers_.begin(at.epoch, training.group != 0 ? training.group : ranks_);
  if (!training.survivors_continue) return;
  report::MemberChange& change = add_change(at.step, training.relayout);
  if (training.joins) change.joined.push_back(at.rank);
  change.group = training.group;
  change.effective_replicas = training.effective_replicas;
}

// Experts restored from older versions start another history. So does a return to an earlier step;
// steps up to that one are still the same.
void Recorder::begin_history(const EventHeader& at, const TrainingEvent& training) {
  const bool lost_tokens = training.restored.lost_tokens > 0;
  const auto undone = lossy_steps_.upper_bound(at.step);
  std::optional<uint64_t> same_until;
  if (undone != lossy_steps_.end()) same_until = *undone;
  if (lost_tokens) same_until = at.step;
  if (!same_until) return;
  history_epoch_ = at.epoch;
  loss_bits_.erase(loss_bits_.upper_bound(*same_until), loss_bits_.end());
  lossy_steps_.erase(undone, lossy_steps_.end());
  if (lost_tokens) lossy_steps_.insert(at.step);
}

void Recorder::on(const EventHeader& at, const RegroupingEvent& regrouping) {
  add_change(at.step, regrouping.relayout);
}

void Recorder::on(const EventHeader& at, const DrainedEvent& drained) {
  add_change(at.step, drained.relayout).left.push_back(at.rank);
}

report::MemberChange& Recorder::add_change(uint64_t step, const Relayout& relayout) {
  report::MemberChange& change = changes_[step];
  change.step = step;
  // A leaving rank has handed over before the others regroup, and then nothing moves.
  change.bytes_moved = std::max(change.bytes_moved, relayout.bytes_moved);
  change.plan_ms = std::max(change.plan_ms, relayout.plan_ms);
  change.migrate_ms = std::max(change.migrate_ms, relayout.migrate_ms);
  // The bound is that of the rank with most.
  if (relayout.memory_bytes > change.memory_bytes) {
    change.memory_bytes = relayout.memory_bytes;
    change.memory_bound = relayout.memory_bound;
  }
  return change;
}

void Recorder::on(const EventHeader& at, const StepEvent& step) {
  if (at.step >= failure_log_.step()) {
    plt_ = step.plt;
    plt_rollback_ = step.plt_rollback;
  }
  const uint64_t epoch = failure_log_.epoch_of(at.rank);
  stragglers_.add(epoch, at, step);
  exchange_.add(epoch, at, step);
  stalls_.stepped(at.rank, epoch, at.step, step.stall_ms);
  if (epoch < history_epoch_) return;  // read late, from the previous history
  const auto [known, fresh] = loss_bits_.emplace(at.step, step.loss_bits);
  if (!fresh && known->second != step.loss_bits) {
    mismatches_.push_back(
        fmt::format("step {}: rank {} has loss bits {:08x}, but {:08x} were seen before", at.step,
                    at.rank, step.loss_bits, known->second));
  }
  if (step.busiest_rows > 0) {
    loads_[at.step] = {.step = at.step,
                       .busiest_tokens = static_cast<uint64_t>(step.busiest_rows),
                       .max_over_mean = step.max_over_mean};
  }
  auto& [of_epoch, slowest] = ms_[at.step];
  if (of_epoch != epoch) slowest = 0;
  of_epoch = epoch;
  slowest = std::max(slowest, step.ms);
}

void Recorder::on(const EventHeader& at, const TakingEvent& taking) {
  Checkpoint& checkpoint = checkpoints_[{failure_log_.epoch_of(at.rank), at.step}];
  checkpoint.bytes = taking.bytes;
  checkpoint.bytes_kept = taking.bytes_kept;
  checkpoint.rank_bytes_max = taking.rank_bytes_max;
  checkpoint.rank_bytes_mean = taking.rank_bytes_mean;
}

void Recorder::on(const EventHeader& at, const SnapshotEvent& snapshot) {
  const uint64_t epoch =
      snapshot.taken_in != 0 ? snapshot.taken_in : failure_log_.epoch_of(at.rank);
  Checkpoint& checkpoint = checkpoints_[{epoch, at.step}];
  stalls_.settled(at.rank, epoch, at.step, snapshot.stall_ms);
  ckpt::keep_longest(checkpoint.timings, snapshot.timings);
  if (!snapshot.durable) return;
  checkpoint.durable = true;
  checkpoint.durable_ms.push_back(snapshot.durable_ms);
  durable_steps_.insert(at.step);
}

void Recorder::on(const EventHeader& at, const ReplannedEvent& replanned) {
  replans_.push_back({.step = at.step,
                      .moved = replanned.moved,
                      .max_over_mean_before = replanned.balance_before,
                      .max_over_mean_after = replanned.balance_after,
                      .gain_ms = replanned.gain_ms,
                      .cost_ms = replanned.cost_ms,
                      .bytes = replanned.relayout.bytes_moved,
                      .plan_ms = replanned.relayout.plan_ms,
                      .migrate_ms = replanned.relayout.migrate_ms,
                      .layer = replanned.layer,
                      .loads = {replanned.routed.begin(), replanned.routed.end()},
                      .ranks_before = replanned.slots_before,
                      .ranks_after = replanned.slots_after});
}

void Recorder::daemon_died(uint64_t now_ns) {
  if (!daemon_down_) daemon_down_ = {.step = step(), .since_ns = now_ns};
}

void Recorder::daemon_back(uint64_t now_ns) {
  if (!daemon_down_) return;
  daemon_failures_.push_back(
      {.step = daemon_down_->step, .down_ms = ms_between(daemon_down_->since_ns, now_ns)});
  daemon_down_.reset();
}

float Recorder::loss() const {
  const auto found = loss_bits_.find(step());
  return found == loss_bits_.end() ? 0.0f : std::bit_cast<float>(found->second);
}

bool Recorder::is_first_of_step(const EventHeader& at) {
  const uint64_t epoch = failure_log_.epoch_of(at.rank);
  const auto [known, fresh] = first_seen_.emplace(at.step, epoch);
  if (!fresh && known->second >= epoch) return false;
  known->second = epoch;
  return true;
}

report::Report Recorder::report() const {
  report::Report report;
  report.ranks = ranks_;
  report.steps = loss_bits_.empty() ? 0 : loss_bits_.rbegin()->first;
  report.tokens_per_step = tokens_per_step_;
  for (const auto& [step, bits] : loss_bits_) {
    report.losses.push_back({.step = step, .loss = std::bit_cast<float>(bits)});
  }
  for (const auto& [step, load] : loads_) {
    if (loss_bits_.contains(step)) report.loads.push_back(load);
  }
  std::vector<double> step_ms;
  step_ms.reserve(ms_.size());
  for (const auto& [step, timed] : ms_) step_ms.push_back(timed.second);
  report.step_ms = {.p50 = percentile(step_ms, 0.50), .p99 = percentile(step_ms, 0.99)};
  report.checkpoints.stall_ms_total = stalls_.total_ms();
  report.checkpoints.stall_ms_max = stalls_.longest_ms();
  std::vector<double> durable_ms;
  for (const auto& [key, checkpoint] : checkpoints_) {
    if (!checkpoint.durable) continue;
    ++report.checkpoints.count;
    report.checkpoints.bytes += checkpoint.bytes;
    report.checkpoints.bytes_kept += checkpoint.bytes_kept;
    report.checkpoints.each.push_back(
        {.step = key.second,
         .bytes = checkpoint.bytes,
         .bytes_kept = checkpoint.bytes_kept,
         .rank_bytes_max = checkpoint.rank_bytes_max,
         .rank_bytes_mean = checkpoint.rank_bytes_mean,
         .stall_ms = stalls_.of(key.first, key.second),
         .durable_ms =
             *std::max_element(checkpoint.durable_ms.begin(), checkpoint.durable_ms.end()),
         .timings = checkpoint.timings});
    durable_ms.insert(durable_ms.end(), checkpoint.durable_ms.begin(), checkpoint.durable_ms.end());
  }
  report.checkpoints.durable_ms_p50 = percentile(durable_ms, 0.50);
  report.plt = plt_;
  report.plt_rollback = plt_rollback_;
  report.lost = lost_;
  report.pace = pace_;
  report.failures = failure_log_.failures();
  report.daemon_failures = daemon_failures_;
  if (daemon_down_) report.daemon_failures.push_back({.step = daemon_down_->step, .down_ms = {}});
  report.replans = replans_;
  report.rank_times = stragglers_.ranks();
  report.exchange = exchange_.report();
  for (const auto& [step, change] : changes_) {
    if (!change.joined.empty() || !change.left.empty()) report.changes.push_back(change);
  }
  return report;
}

}  // namespace moetrain
