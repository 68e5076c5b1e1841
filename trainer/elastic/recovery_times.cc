#include "trainer/elastic/recovery_times.h"

#include <algorithm>

namespace moetrain {

namespace {

uint64_t last_of(const std::map<uint32_t, uint64_t>& times_ns) {
  uint64_t last = 0;
  for (const auto& [rank, time_ns] : times_ns) last = std::max(last, time_ns);
  return last;
}

}  // namespace

void RecoveryTimes::lost(uint64_t time_ns) { lost_ns_ = std::min(lost_ns_, time_ns); }

void RecoveryTimes::noticed(const EventHeader& at) {
  if (noticed_epoch_ != 0 && at.epoch > noticed_epoch_) return;
  if (at.epoch < noticed_epoch_) noticed_ns_ = 0;
  noticed_epoch_ = at.epoch;
  noticed_ns_ = std::max(noticed_ns_, at.time_ns);
}

void RecoveryTimes::begin(uint64_t epoch) {
  if (epoch <= epoch_) return;
  epoch_ = epoch;
  connected_ns_.clear();
  planned_ns_ = 0;
  ready_ns_ = 0;
  training_.clear();
  first_step_ns_.clear();
}

void RecoveryTimes::connected(const EventHeader& at) {
  begin(at.epoch);
  // A rank sends both events: it is connected when it starts to restore its state.
  if (at.epoch == epoch_) connected_ns_[at.rank] = at.time_ns;
}

void RecoveryTimes::trains(const EventHeader& at, const TrainingEvent& training) {
  begin(at.epoch);
  if (at.epoch != epoch_) return;
  training_.insert(at.rank);
  ready_ns_ = std::max(ready_ns_, at.time_ns);
  // Measured from the time when the rank was connected.
  const auto connected = connected_ns_.find(at.rank);
  if (connected == connected_ns_.end()) return;
  const auto plan_ns = static_cast<uint64_t>(std::max(training.relayout.plan_ms, 0.0) * 1e6);
  planned_ns_ = std::max(planned_ns_, connected->second + plan_ns);
}

void RecoveryTimes::stepped(uint32_t rank, uint64_t epoch, uint64_t time_ns) {
  if (epoch == epoch_ && training_.contains(rank)) first_step_ns_.emplace(rank, time_ns);
}

uint64_t RecoveryTimes::stepped_ns() const { return last_of(first_step_ns_); }

report::Failure::Split RecoveryTimes::split_ms() const {
  uint64_t from_ns = lost_ns_;
  const auto until = [&](uint64_t bound_ns) {
    const double ms = ms_between(from_ns, bound_ns);
    from_ns = std::max(from_ns, bound_ns);
    return ms;
  };
  // A plan cannot end after the state is ready; a rank's own clock may say so.
  const uint64_t planned_ns = std::min(planned_ns_, ready_ns_);
  report::Failure::Split split;
  split.detect = until(noticed_ns_);
  split.regroup = until(last_of(connected_ns_));
  split.plan = until(planned_ns);
  split.migrate = until(ready_ns_);
  split.first_step = until(stepped_ns());
  return split;
}

double RecoveryTimes::whole_ms() const {
  return ms_between(lost_ns_, std::max(ready_ns_, stepped_ns()));
}

}  // namespace moetrain
