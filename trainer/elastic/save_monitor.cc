#include "trainer/elastic/save_monitor.h"

#include <utility>

namespace moetrain {

void SaveMonitor::add(const RankEvent& event) {
  std::visit([&](const auto& body) { on(event.header, body); }, event.body);
}

void SaveMonitor::on(const EventHeader& at, const TrainingEvent& training) {
  epoch_of_rank_[at.rank] = at.epoch;
  if (at.epoch <= epoch_) return;  // another rank of the same group
  epoch_ = at.epoch;
  // Survivors continue with their state; a resume returns to the saved state.
  if (training.survivors_continue) {
    unsaved_.membership_changed();
    return unsaved_.stepped(at.step);
  }
  begun_epoch_ = at.epoch;
  pending_.rewound();
  troubles_.rewound();
  stalls_.rewound();
  unsaved_.begins(at.step, at.time_ns);
}

void SaveMonitor::on(const EventHeader& at, const StepEvent& step) {
  if (is_past(epoch_of_rank_[at.rank])) return;
  unsaved_.stepped(at.step);
  stalls_.stepped(at, step);
}

// The last checkpoint restarts with the next group.
void SaveMonitor::group_left(const EventHeader& at) {
  if (!is_past(at.epoch)) unsaved_.membership_changed();
}

void SaveMonitor::on(const EventHeader& at, const TakingEvent& /*taking*/) {
  if (!is_past(epoch_of_rank_[at.rank])) pending_.taking(at.step);
}

void SaveMonitor::on(const EventHeader& at, const SnapshotEvent& snapshot) {
  const uint64_t epoch = snapshot.taken_in != 0 ? snapshot.taken_in : epoch_of_rank_[at.rank];
  if (epoch < begun_epoch_) return;  // of redone steps
  pending_.settled(at.step);
  if (snapshot.durable) {
    stalls_.durable(at, snapshot);
    troubles_.durable(at.step);
    return unsaved_.durable(at.step, at.time_ns);
  }
  // UnsavedWatch reports a ckptd that does not answer once, not for each checkpoint.
  if (snapshot.no_answer) {
    troubles_.unanswered(at.step);
    return unsaved_.unanswered(at.step, at.time_ns);
  }
  const auto detail = static_cast<ckpt::ErrorDetail>(snapshot.detail);
  if (!troubles_.failed(at.step, {snapshot.reason, detail}, at.time_ns)) return;
  if (troubles_.cause().empty()) return;  // known to another rank
  unsaved_.failed(at.step, troubles_.cause(), at.time_ns);
}

void SaveMonitor::on(const EventHeader& at, const StallingEvent& stalling) {
  if (!is_past(at.epoch)) stalls_.stalling(at, stalling);
}

void SaveMonitor::on(const EventHeader& at, const PostponedEvent& /*postponed*/) {
  if (!is_past(at.epoch)) unsaved_.unanswered(at.step, at.time_ns);
}

void SaveMonitor::on(const EventHeader& at, const SavingEvent& /*saving*/) {
  if (!is_past(at.epoch)) unsaved_.saving(at.step, at.time_ns);
}

UnsavedWatch::Finding SaveMonitor::poll(const UnsavedWatch::Daemon& daemon, uint64_t now_ns) {
  UnsavedWatch::Finding finding = unsaved_.poll(daemon, now_ns);
  std::vector<std::string> lines = troubles_.lines(now_ns);
  if (auto line = stalls_.line(now_ns)) lines.push_back(std::move(*line));
  finding.lines.insert(finding.lines.begin(), std::make_move_iterator(lines.begin()),
                       std::make_move_iterator(lines.end()));
  return finding;
}

std::string SaveMonitor::with_cause(const std::string& reason) const {
  const size_t at = reason.rfind(kOtherRankFailed);
  const std::string cause = troubles_.cause().empty() ? unsaved_.cause() : troubles_.cause();
  const bool blames = at != std::string::npos && !cause.empty();
  const std::string text = blames ? reason.substr(0, at) + cause : reason;
  const std::string own = snapshot_cause(text);
  return text.substr(0, text.size() - own.size()) + troubles_.repeated_cause(own);
}

}  // namespace moetrain
