#include "bench/research/kill_figures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "bench/common/paired.h"
#include "trainer/elastic/recovery_times.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using moetrain::ConnectingEvent;
using moetrain::EventHeader;
using moetrain::GroupLostEvent;
using moetrain::RankEvent;
using moetrain::RestoringEvent;
using moetrain::StepEvent;
using moetrain::TrainingEvent;

namespace {

double seconds_between(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) / 1e9 : 0;
}

// A single pass over the events in order of time.
class Timeline {
 public:
  Timeline(const std::vector<RankEvent>& events, const Kill& kill) : events_(events), kill_(kill) {
    times_.lost(kill.at_ns);
  }

  Result<KillFigures> figures();

 private:
  void find_epochs();
  void on(const EventHeader& at, const GroupLostEvent&);
  void on(const EventHeader& at, const TrainingEvent& training);
  void on(const EventHeader& at, const StepEvent& step);
  template <moetrain::OneOf<ConnectingEvent, RestoringEvent> Connected>
  void on(const EventHeader& at, const Connected&) {
    if (at.epoch == next_epoch_) times_.connected(at);
  }
  template <typename Other>
  void on(const EventHeader&, const Other&) {}
  void fill_times();
  bool all_trained_on() const;

  const std::vector<RankEvent>& events_;
  const Kill& kill_;
  uint64_t killed_epoch_ = 0;
  uint64_t next_epoch_ = 0;                // the first one later in which a step was completed
  std::map<uint32_t, uint64_t> epoch_of_;  // rank -> the one that it trains in
  moetrain::RecoveryTimes times_;
  std::map<uint32_t, uint64_t> new_step_ns_;  // by member of the next epoch
  std::map<uint64_t, uint64_t> done_ns_;      // step -> when the first rank had it; before the kill
  KillFigures figures_;
};

void Timeline::find_epochs() {
  std::map<uint32_t, uint64_t> epoch_of;
  for (const RankEvent& event : events_) {
    const EventHeader& at = event.header;
    if (event.as<TrainingEvent>() != nullptr) {
      epoch_of[at.rank] = at.epoch;
      if (at.time_ns < kill_.at_ns) killed_epoch_ = std::max(killed_epoch_, at.epoch);
    }
    if (event.as<StepEvent>() == nullptr || at.time_ns < kill_.at_ns) continue;
    if (epoch_of[at.rank] > killed_epoch_) {
      next_epoch_ = epoch_of[at.rank];
      return;
    }
  }
}

void Timeline::on(const EventHeader& at, const GroupLostEvent& /*lost*/) {
  if (at.epoch == killed_epoch_) times_.noticed(at);
}

void Timeline::on(const EventHeader& at, const TrainingEvent& training) {
  epoch_of_[at.rank] = at.epoch;
  if (at.epoch != next_epoch_) return;
  times_.trains(at, training);
  figures_.group = training.group;
  figures_.effective_replicas = training.effective_replicas;
  figures_.resumed_at = at.step;
  const moetrain::RestoredState& restored = training.restored;
  figures_.lost_tokens = std::max(figures_.lost_tokens, restored.lost_tokens);
  figures_.stale_units.insert(restored.stale_units.begin(), restored.stale_units.end());
}

void Timeline::on(const EventHeader& at, const StepEvent& step) {
  const uint64_t epoch = epoch_of_[at.rank];
  figures_.loss_bits[at.step] = step.loss_bits;
  if (at.time_ns < kill_.at_ns) done_ns_.emplace(at.step, at.time_ns);
  // Survivors also complete what one of them had applied, while they agree.
  if (epoch == killed_epoch_) figures_.completed = std::max(figures_.completed, at.step);
  if (epoch != next_epoch_) return;
  times_.stepped(at.rank, epoch, at.time_ns);
  if (at.step == figures_.completed + 1) new_step_ns_.emplace(at.rank, at.time_ns);
}

bool Timeline::all_trained_on() const {
  const size_t group = figures_.group;
  return group > 0 && times_.training() == group && times_.stepped() == group &&
         new_step_ns_.size() == group;
}

void Timeline::fill_times() {
  std::vector<double> steps;
  steps.reserve(done_ns_.size());
  for (auto done = done_ns_.begin(); done != done_ns_.end(); ++done) {
    const auto before = done_ns_.find(done->first - 1);
    if (before != done_ns_.end()) steps.push_back(seconds_between(before->second, done->second));
  }
  if (!steps.empty()) figures_.step_seconds = median(steps);
  figures_.seconds = times_.whole_ms() / 1e3;
  uint64_t new_step_ns = 0;
  for (const auto& [rank, time_ns] : new_step_ns_) new_step_ns = std::max(new_step_ns, time_ns);
  figures_.new_step_seconds = seconds_between(kill_.at_ns, new_step_ns);
  const auto split_ms = times_.split_ms();
  figures_.split = {.detect = split_ms.detect / 1e3,
                    .regroup = split_ms.regroup / 1e3,
                    .plan = split_ms.plan / 1e3,
                    .migrate = split_ms.migrate / 1e3,
                    .first_step = split_ms.first_step / 1e3};
}

Result<KillFigures> Timeline::figures() {
  find_epochs();
  if (killed_epoch_ == 0 || next_epoch_ == 0) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "nobody trained {} ranks were lost ({} events)",
                      killed_epoch_ == 0 ? "before" : "on after", events_.size());
  }
  for (const RankEvent& event : events_) {
    std::visit([&](const auto& body) { on(event.header, body); }, event.body);
  }
  if (!all_trained_on()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "epoch {}, after the loss, has {} ranks; {} began to train, {} did a step "
                      "and {} did step {}",
                      next_epoch_, figures_.group, times_.training(), times_.stepped(),
                      new_step_ns_.size(), figures_.completed + 1);
  }
  fill_times();
  return figures_;
}

}  // namespace

Result<KillFigures> kill_figures(std::vector<RankEvent> events, const Kill& kill) {
  std::stable_sort(events.begin(), events.end(), [](const RankEvent& a, const RankEvent& b) {
    return a.header.time_ns < b.header.time_ns;
  });
  return Timeline(events, kill).figures();
}

double relative_difference(const std::map<uint64_t, uint32_t>& loss_bits,
                           const std::map<uint64_t, uint32_t>& others) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (loss_bits.size() != others.size()) return kNone;
  double largest = 0;
  for (const auto& [step, bits] : loss_bits) {
    const auto other = others.find(step);
    if (other == others.end()) return kNone;
    const double loss = std::bit_cast<float>(bits);
    const double difference = std::abs(loss - std::bit_cast<float>(other->second));
    if (!std::isfinite(difference)) return kNone;
    if (difference > 0) largest = std::max(largest, difference / std::abs(loss));
  }
  return largest;
}

}  // namespace bench
