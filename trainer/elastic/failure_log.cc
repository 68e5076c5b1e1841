#include "trainer/elastic/failure_log.h"

#include <algorithm>
#include <utility>

namespace moetrain {

namespace {

bool names(const report::Failure& failure, uint32_t rank) {
  return std::ranges::find(failure.ranks, rank) != failure.ranks.end();
}

uint64_t value_of(const std::map<uint32_t, uint64_t>& by_rank, uint32_t rank) {
  const auto found = by_rank.find(rank);
  return found == by_rank.end() ? 0 : found->second;
}

}  // namespace

void FailureLog::add(const RankEvent& event) {
  const EventHeader& at = event.header;
  last_sign_[at.rank] = at.time_ns;
  if (event.as<AliveEvent>() == nullptr) last_act_[at.rank] = at.time_ns;
  std::visit([&](const auto& body) { on(at, body); }, event.body);
}

uint64_t FailureLog::epoch_of(uint32_t rank) const { return value_of(epoch_of_, rank); }

// A failure is not always a death: a group lost to a slow peer costs as much.
void FailureLog::on(const EventHeader& at, const GroupLostEvent& /*lost*/) {
  if (is_past(at.epoch)) return;  // this rank was left behind
  open_failure(at.time_ns, /*known=*/false).times.noticed(at);
}

void FailureLog::connected(const EventHeader& at) {
  if (open_ && !is_past(at.epoch)) open_->times.connected(at);
}

FailureLog::OpenFailure& FailureLog::open_failure(uint64_t lost_ns, bool known) {
  if (!open_) {
    open_ = OpenFailure{};
    open_->failure.step = step_;
    open_->last_completed = step_;
    open_->failure.ranks = std::exchange(newcomers_lost_, {});
    open_->members = members_;
    open_->lost_epoch = trained_epoch_;
  }
  RecoveryTimes& times = open_->times;
  if (lost_ns < times.lost_ns()) open_->loss_time_known = known;
  times.lost(lost_ns);
  return *open_;
}

bool FailureLog::is_past(uint64_t epoch) const {
  return epoch < (open_ ? open_->lost_epoch : trained_epoch_);
}

// A stopped process sends no events. If heartbeats arrived after the others had noticed the loss,
// only training hangs, since the rank's last other event.
uint64_t FailureLog::hang_began(uint32_t rank) const {
  const uint64_t noticed_ns = open_ ? open_->times.noticed_ns() : 0;
  const bool beats = noticed_ns != 0 && value_of(last_sign_, rank) > noticed_ns;
  return value_of(beats ? last_act_ : last_sign_, rank);
}

uint64_t FailureLog::rank_died(uint32_t rank, uint64_t now_ns) {
  const auto dying = dying_since_.find(rank);
  const auto trained = epoch_of_.find(rank);
  const bool newcomer = !epoch_of_.empty() && trained == epoch_of_.end();
  if (!open_ && newcomer) {
    newcomers_lost_.push_back(rank);
    return step_ + 1;
  }
  // The failure in which the others dropped this rank names it already.
  if (trained != epoch_of_.end() && is_past(trained->second)) {
    dying_since_.erase(rank);
    return lost_at(rank);
  }
  const bool known = dying != dying_since_.end();
  OpenFailure& open = open_failure(known ? dying->second : now_ns, known);
  if (open.known_ns == 0) open.known_ns = now_ns;
  name_lost(rank, open.failure);
  if (open.back.contains(rank)) open.back.clear();
  if (known) dying_since_.erase(dying);
  return open.failure.at_step;
}

// The first rank of a failure sets its step. The others were in that step, or in an adjacent one.
void FailureLog::name_lost(uint32_t rank, report::Failure& failure) const {
  if (!names(failure, rank)) failure.ranks.push_back(rank);
  const auto in_step = in_step_.find(rank);
  if (failure.at_step == 0) {
    failure.at_step = in_step == in_step_.end() ? step_ + 1 : in_step->second;
  }
}

// The step of the newest failure that names the rank.
uint64_t FailureLog::lost_at(uint32_t rank) const {
  if (open_ && names(open_->failure, rank)) return open_->failure.at_step;
  const auto found = std::find_if(failures_.rbegin(), failures_.rend(),
                                  [&](const auto& failure) { return names(failure, rank); });
  return found == failures_.rend() ? step_ + 1 : found->at_step;
}

void FailureLog::on(const EventHeader& at, const TrainingEvent& training) {
  epoch_of_[at.rank] = at.epoch;
  in_step_[at.rank] = at.step + 1;
  if (at.epoch > trained_epoch_) {
    trained_epoch_ = at.epoch;
    members_.clear();
  }
  if (at.epoch == trained_epoch_) members_.insert(at.rank);
  if (!open_) {
    step_ = at.step;
    return;
  }
  add_recovery(at, training);
  const uint32_t group = training.group != 0 ? training.group : ranks_;
  if (open_->back.size() == group) close_failure(at, training);
}

// A rank of the failed group trains again.
void FailureLog::add_recovery(const EventHeader& at, const TrainingEvent& training) {
  OpenFailure& open = *open_;
  report::Failure& failure = open.failure;
  if (at.epoch != open.epoch) {
    open.epoch = at.epoch;
    open.back.clear();
    failure.bytes = {};
    failure.stale_units = 0;
    failure.lost_tokens = 0;
    failure.experts_from_seed = 0;
  }
  open.back.insert(at.rank);
  open.times.trains(at, training);
  const RestoredState& restored = training.restored;
  failure.bytes.memory += restored.bytes_memory;
  failure.bytes.disk += restored.bytes_disk;
  failure.stale_units += restored.stale_units.size();
  // All ranks report the same loss.
  failure.lost_tokens = static_cast<uint64_t>(std::max<int64_t>(restored.lost_tokens, 0));
  failure.experts_from_seed = restored.experts_from_seed;
  if (!training.survivors_continue) return;
  failure.group = training.group;
  failure.effective_replicas = training.effective_replicas;
  failure.bytes.replica = training.relayout.bytes_moved;
}

// All train again, the last one by this event.
void FailureLog::close_failure(const EventHeader& at, const TrainingEvent& training) {
  OpenFailure& open = *open_;
  continued_.reset();
  if (training.survivors_continue) {
    for (const uint32_t rank : open.members) {
      if (open.back.contains(rank) || names(open.failure, rank)) continue;
      // This rank was left behind: its process may live, but the group dropped it.
      open_failure(hang_began(rank), /*known=*/true);
      if (open.known_ns == 0) open.known_ns = open.times.noticed_ns();
      name_lost(rank, open.failure);
    }
    open.failure.split_ms = open.times.split_ms();
    continued_ = open.times;
  }
  report::Failure failure = to_failure(open);
  failure.resumed_ms = ms_between(open.times.lost_ns(), open.times.ready_ns());
  failure.steps_lost = open.last_completed - std::min(open.last_completed, at.step);
  failures_.push_back(std::move(failure));
  open_.reset();
  step_ = at.step;
}

report::Failure FailureLog::to_failure(const OpenFailure& open) {
  report::Failure failure = open.failure;
  if (failure.at_step == 0) failure.at_step = open.last_completed + 1;  // no rank died
  if (open.loss_time_known) failure.detected_ms = ms_between(open.times.lost_ns(), open.known_ns);
  return failure;
}

// A group that was lost without a death and did not return is no failure yet: its ranks may still
// rejoin, or the run is over.
std::vector<report::Failure> FailureLog::failures() const {
  std::vector<report::Failure> all = failures_;
  if (open_ && !open_->failure.ranks.empty()) all.push_back(to_failure(*open_));
  return all;
}

void FailureLog::on(const EventHeader& at, const StepEvent& /*step*/) {
  in_step_[at.rank] = at.step + 1;
  add_first_step(at);
  // Training continues, so a joining rank that was lost before it trained cost the group nothing.
  if (!open_) newcomers_lost_.clear();
  step_ = std::max(step_, at.step);
  if (!open_) return;
  // A survivor completed one more before it noticed.
  open_->last_completed = std::max(open_->last_completed, at.step);
  open_->failure.step = open_->last_completed;
}

// The recovery is over when all continuing ranks have completed a step.
void FailureLog::add_first_step(const EventHeader& at) {
  if (!continued_) return;
  continued_->stepped(at.rank, epoch_of(at.rank), at.time_ns);
  failures_.back().split_ms = continued_->split_ms();
  if (continued_->stepped() == continued_->training()) continued_.reset();
}

void FailureLog::on(const EventHeader& at, const DrainedEvent& /*drained*/) {
  members_.erase(at.rank);
  if (open_) open_->members.erase(at.rank);
}

}  // namespace moetrain
