#include "trainer/elastic/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace moetrain {

using Kind = RankEvent::Kind;

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
    : ranks_(ranks), tokens_per_step_(tokens_per_step) {}

void Recorder::add(const RankEvent& event) {
  last_sign_[event.rank] = event.time_ns;
  if (event.kind != Kind::kAlive) last_act_[event.rank] = event.time_ns;
  switch (event.kind) {
    case Kind::kGroupLost:
      if (is_past(event.epoch)) return;  // it was left behind, and comes to itself
      // Not always somebody's death: a group that is lost because a peer was too slow costs as
      // much.
      return open_failure(event.time_ns, /*known=*/false).times.noticed(event);
    case Kind::kTraining:
      return add_training(event);
    case Kind::kStep:
      return add_step(event);
    case Kind::kTaking:
      return add_taking(event);
    case Kind::kSnapshot:
      return add_snapshot(event);
    case Kind::kDying:
      dying_since_[event.rank] = event.time_ns;
      return;
    case Kind::kPacing:
      pace_ = {event.checkpoint_every, event.experts_per_checkpoint, event.experts_per_snapshot,
               event.text};
      return;
    case Kind::kReplanned:
      return add_replan(event);
    case Kind::kDrained:
      members_.erase(event.rank);
      if (open_failure_) open_failure_->members.erase(event.rank);
      return add_change(event);
    case Kind::kRegrouping:
      return add_change(event);
    case Kind::kConnecting:
    case Kind::kRestoring:
      if (open_failure_ && !is_past(event.epoch)) open_failure_->times.connected(event);
      return;
    case Kind::kAlive:
    case Kind::kJoining:
    case Kind::kSaving:
    case Kind::kLog:
    case Kind::kSaved:
    case Kind::kFatal:
    case Kind::kPostponed:
    case Kind::kNotice:
      return;
  }
}

Recorder::OpenFailure& Recorder::open_failure(uint64_t lost_ns, bool known) {
  if (!open_failure_) {
    open_failure_ = OpenFailure{};
    open_failure_->failure.step = step_;
    open_failure_->last_completed = step_;
    open_failure_->failure.ranks = std::exchange(newcomers_lost_, {});
    open_failure_->members = members_;
    open_failure_->lost_epoch = trained_epoch_;
  }
  RecoveryTimes& times = open_failure_->times;
  if (lost_ns < times.lost_ns()) open_failure_->lost_is_known = known;
  times.lost(lost_ns);
  return *open_failure_;
}

// Have the others trained without that epoch's members, before this failure if there is one?
bool Recorder::is_past(uint64_t epoch) const {
  return epoch < (open_failure_ ? open_failure_->lost_epoch : trained_epoch_);
}

void Recorder::rank_hangs(uint32_t rank) { dying_since_[rank] = hang_began(rank); }

// A stopped process gives no sign of life any more. Where one is given although the others have
// noticed already, it is the training alone that hangs, since what it last did.
uint64_t Recorder::hang_began(uint32_t rank) const {
  const auto at = [rank](const std::map<uint32_t, uint64_t>& times_ns) {
    const auto found = times_ns.find(rank);
    return found == times_ns.end() ? 0 : found->second;
  };
  const uint64_t noticed_ns = open_failure_ ? open_failure_->times.noticed_ns() : 0;
  const bool beats = noticed_ns != 0 && at(last_sign_) > noticed_ns;
  return beats ? at(last_act_) : at(last_sign_);
}

void Recorder::rank_died(uint32_t rank, uint64_t now_ns) {
  const auto dying = dying_since_.find(rank);
  if (!open_failure_ && !epoch_of_rank_.empty() && !epoch_of_rank_.contains(rank)) {
    newcomers_lost_.push_back(rank);
    return;
  }
  // Named already by the failure in which the others gave it up.
  const auto trained = epoch_of_rank_.find(rank);
  if (trained != epoch_of_rank_.end() && is_past(trained->second)) {
    dying_since_.erase(rank);
    return;
  }
  // Ranks lost before training went on are one failure.
  const bool known = dying != dying_since_.end();
  OpenFailure& open = open_failure(known ? dying->second : now_ns, known);
  if (open.known_ns == 0) open.known_ns = now_ns;
  name_lost(rank, open.failure);
  if (open.back.contains(rank)) open.back.clear();
  if (known) dying_since_.erase(dying);
}

void Recorder::name_lost(uint32_t rank, report::Failure& failure) {
  const auto found = std::find(failure.ranks.begin(), failure.ranks.end(), rank);
  if (found == failure.ranks.end()) failure.ranks.push_back(rank);
}

void Recorder::add_training(const RankEvent& event) {
  plt_ = event.plt;
  plt_rollback_ = event.plt_rollback;
  lost_ = event.lost;
  if (event.epoch > history_epoch_) begin_history(event);
  epoch_of_rank_[event.rank] = event.epoch;
  if (event.epoch > trained_epoch_) {
    trained_epoch_ = event.epoch;
    members_.clear();
  }
  if (event.epoch == trained_epoch_) members_.insert(event.rank);
  stragglers_.begin(event.epoch, event.group != 0 ? event.group : ranks_);
  if (event.goes_on) add_change(event);
  if (!open_failure_) {
    step_ = event.step;
    return;
  }
  OpenFailure& open = *open_failure_;
  if (event.epoch != open.epoch) {
    open.epoch = event.epoch;
    open.back.clear();
    open.failure.bytes = {};
    open.failure.stale_units = 0;
    open.failure.lost_tokens = 0;
    open.failure.experts_from_seed = 0;
  }
  open.back.insert(event.rank);
  open.times.trains(event);
  open.failure.bytes.memory += event.bytes_memory;
  open.failure.bytes.disk += event.bytes_disk;
  open.failure.stale_units += event.stale_units.size();
  // All ranks tell of the same ones.
  open.failure.lost_tokens = static_cast<uint64_t>(std::max<int64_t>(event.lost_tokens, 0));
  open.failure.experts_from_seed = event.experts_from_seed;
  if (event.goes_on) add_survivor(event, open.failure);
  if (open.back.size() == (event.group != 0 ? event.group : ranks_)) close_failure(event);
}

// All train again, the last one by this event.
void Recorder::close_failure(const RankEvent& event) {
  OpenFailure& open = *open_failure_;
  went_on_.reset();
  if (event.goes_on) {
    for (const uint32_t rank : open.members) {
      const std::vector<uint32_t>& dead = open.failure.ranks;
      if (open.back.contains(rank) || std::ranges::find(dead, rank) != dead.end()) continue;
      // Left behind: its process may live, and the others have given it up.
      open_failure(hang_began(rank), /*known=*/true);
      if (open.known_ns == 0) open.known_ns = open.times.noticed_ns();
      name_lost(rank, open.failure);
    }
    open.failure.split_ms = open.times.split_ms();
    went_on_ = open.times;
  }
  const uint64_t lost_ns = open.times.lost_ns();
  if (open.lost_is_known) open.failure.detected_ms = ms_between(lost_ns, open.known_ns);
  open.failure.resumed_ms = ms_between(lost_ns, open.times.ready_ns());
  open.failure.steps_lost = open.last_completed - std::min(open.last_completed, event.step);
  failures_.push_back(open.failure);
  open_failure_.reset();
  step_ = event.step;
}

// Where some experts came back older than the rest, what follows is another history. So it is where
// all go back to before that had happened; steps until then are still the same.
void Recorder::begin_history(const RankEvent& event) {
  const auto undone = lossy_steps_.upper_bound(event.step);
  std::optional<uint64_t> same_until;
  if (undone != lossy_steps_.end()) same_until = *undone;
  if (event.lost_tokens > 0) same_until = event.step;
  if (!same_until) return;
  history_epoch_ = event.epoch;
  loss_bits_.erase(loss_bits_.upper_bound(*same_until), loss_bits_.end());
  lossy_steps_.erase(undone, lossy_steps_.end());
  if (event.lost_tokens > 0) lossy_steps_.insert(event.step);
}

void Recorder::add_survivor(const RankEvent& event, report::Failure& failure) {
  failure.group = event.group;
  failure.effective_replicas = event.effective_replicas;
  failure.bytes.replica = event.bytes_moved;
}

void Recorder::add_change(const RankEvent& event) {
  report::MemberChange& change = changes_[event.step];
  change.step = event.step;
  if (event.joins) change.joined.push_back(event.rank);
  if (event.kind == Kind::kDrained) change.left.push_back(event.rank);
  if (event.kind == Kind::kTraining) {
    change.group = event.group;
    change.effective_replicas = event.effective_replicas;
  }
  // Who leaves has handed over before the others find each other again, where nothing moves then.
  change.bytes_moved = std::max(change.bytes_moved, event.bytes_moved);
  change.plan_ms = std::max(change.plan_ms, event.plan_ms);
  change.migrate_ms = std::max(change.migrate_ms, event.migrate_ms);
}

// The recovery is over when all of those that went on have completed a step.
void Recorder::add_first_step(const RankEvent& event) {
  if (!went_on_) return;
  went_on_->stepped(event.rank, epoch_of_rank_[event.rank], event.time_ns);
  failures_.back().split_ms = went_on_->split_ms();
  if (went_on_->stepped() == went_on_->training()) went_on_.reset();
}

void Recorder::add_step(const RankEvent& event) {
  add_first_step(event);
  // The others train, whoever was lost before it came to them.
  if (!open_failure_) newcomers_lost_.clear();
  if (event.step >= step_) {
    plt_ = event.plt;
    plt_rollback_ = event.plt_rollback;
  }
  step_ = std::max(step_, event.step);
  if (open_failure_) {
    // A survivor completed one more before it noticed.
    open_failure_->last_completed = std::max(open_failure_->last_completed, event.step);
    open_failure_->failure.step = open_failure_->last_completed;
  }
  const uint64_t epoch = epoch_of_rank_[event.rank];
  stragglers_.add(epoch, event);
  if (epoch < history_epoch_) return;  // of the history before, and read late
  const auto [known, fresh] = loss_bits_.emplace(event.step, event.loss_bits);
  if (!fresh && known->second != event.loss_bits) {
    mismatches_.push_back(
        fmt::format("step {}: rank {} has loss bits {:08x}, but {:08x} were seen before",
                    event.step, event.rank, event.loss_bits, known->second));
  }
  if (event.busiest_rows > 0) {
    loads_[event.step] = {.step = event.step,
                          .busiest_tokens = static_cast<uint64_t>(event.busiest_rows),
                          .max_over_mean = event.max_over_mean};
  }
  auto& [of_epoch, slowest] = ms_[event.step];
  if (of_epoch != epoch) slowest = 0;
  of_epoch = epoch;
  slowest = std::max(slowest, event.ms);
}

void Recorder::add_taking(const RankEvent& event) {
  Checkpoint& checkpoint = checkpoints_[{epoch_of_rank_[event.rank], event.step}];
  checkpoint.bytes = event.bytes;
  checkpoint.bytes_kept = event.bytes_kept;
  checkpoint.rank_bytes_max = event.rank_bytes_max;
  checkpoint.rank_bytes_mean = event.rank_bytes_mean;
}

void Recorder::add_snapshot(const RankEvent& event) {
  const uint64_t epoch = event.taken_in != 0 ? event.taken_in : epoch_of_rank_[event.rank];
  Checkpoint& checkpoint = checkpoints_[{epoch, event.step}];
  checkpoint.stall_ms = std::max(checkpoint.stall_ms, event.stall_ms);
  if (!event.durable) return;
  checkpoint.durable = true;
  checkpoint.durable_ms.push_back(event.durable_ms);
  durable_steps_.insert(event.step);
}

void Recorder::add_replan(const RankEvent& event) {
  replans_.push_back({.step = event.step,
                      .moved = event.moved,
                      .max_over_mean_before = event.balance_before,
                      .max_over_mean_after = event.balance_after,
                      .gain_ms = event.gain_ms,
                      .cost_ms = event.cost_ms,
                      .bytes = event.bytes_moved,
                      .plan_ms = event.plan_ms,
                      .migrate_ms = event.migrate_ms,
                      .layer = event.layer,
                      .loads = {event.routed.begin(), event.routed.end()},
                      .ranks_before = event.slots_before,
                      .ranks_after = event.slots_after});
}

void Recorder::daemon_died(uint64_t now_ns) {
  if (!daemon_down_since_) daemon_down_since_ = now_ns;
}

void Recorder::daemon_back(uint64_t now_ns) {
  if (!daemon_down_since_) return;
  daemon_failures_.push_back({.step = step_, .down_ms = ms_between(*daemon_down_since_, now_ns)});
  daemon_down_since_.reset();
}

float Recorder::loss() const {
  const auto found = loss_bits_.find(step_);
  return found == loss_bits_.end() ? 0.0f : std::bit_cast<float>(found->second);
}

bool Recorder::is_first_of_step(const RankEvent& event) {
  const uint64_t epoch = epoch_of_rank_[event.rank];
  const auto [known, fresh] = first_seen_.emplace(event.step, epoch);
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
  std::vector<double> durable_ms;
  for (const auto& [key, checkpoint] : checkpoints_) {
    report.checkpoints.stall_ms_total += checkpoint.stall_ms;
    report.checkpoints.stall_ms_max =
        std::max(report.checkpoints.stall_ms_max, checkpoint.stall_ms);
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
         .stall_ms = checkpoint.stall_ms,
         .durable_ms =
             *std::max_element(checkpoint.durable_ms.begin(), checkpoint.durable_ms.end())});
    durable_ms.insert(durable_ms.end(), checkpoint.durable_ms.begin(), checkpoint.durable_ms.end());
  }
  report.checkpoints.durable_ms_p50 = percentile(durable_ms, 0.50);
  report.plt = plt_;
  report.plt_rollback = plt_rollback_;
  report.lost = lost_;
  report.pace = pace_;
  report.failures = failures_;
  report.daemon_failures = daemon_failures_;
  report.replans = replans_;
  report.rank_times = stragglers_.ranks();
  for (const auto& [step, change] : changes_) {
    if (!change.joined.empty() || !change.left.empty()) report.changes.push_back(change);
  }
  return report;
}

}  // namespace moetrain
