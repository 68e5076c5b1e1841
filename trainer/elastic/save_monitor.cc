#include "trainer/elastic/save_monitor.h"

#include <utility>

namespace moetrain {

using Kind = RankEvent::Kind;

void SaveMonitor::add(const RankEvent& event) {
  switch (event.kind) {
    case Kind::kTraining:
      return add_training(event);
    case Kind::kStep:
      if (is_past(epoch_of_rank_[event.rank])) return;
      unsaved_.stepped(event.step);
      return stalls_.stepped(event);
    case Kind::kGroupLost:
    case Kind::kRegrouping:
      if (is_past(event.epoch)) return;
      return unsaved_.goes_on();  // the last checkpoint begins anew with the next group
    case Kind::kSaving:
      if (is_past(event.epoch)) return;
      return unsaved_.saving(event.step, event.time_ns);
    case Kind::kSnapshot:
      return add_snapshot(event);
    case Kind::kPostponed:
      if (is_past(event.epoch)) return;
      return unsaved_.unanswered(event.step, event.time_ns);
    default:
      return;
  }
}

void SaveMonitor::add_training(const RankEvent& event) {
  epoch_of_rank_[event.rank] = event.epoch;
  if (event.epoch <= epoch_) return;  // another rank of the same group
  epoch_ = event.epoch;
  // Survivors go on with what they have; whoever resumes goes back to what is saved.
  if (event.goes_on) {
    unsaved_.goes_on();
    return unsaved_.stepped(event.step);
  }
  begun_epoch_ = event.epoch;
  troubles_.goes_back();
  stalls_.goes_back();
  unsaved_.begins(event.step, event.time_ns);
}

void SaveMonitor::add_snapshot(const RankEvent& event) {
  const uint64_t epoch = event.taken_in != 0 ? event.taken_in : epoch_of_rank_[event.rank];
  if (epoch < begun_epoch_) return;  // of steps that are done again
  if (event.durable) {
    stalls_.durable(event);
    troubles_.durable(event.step);
    return unsaved_.durable(event.step, event.time_ns);
  }
  // A ckptd that does not answer is told once, by UnsavedWatch, not for each checkpoint.
  if (event.no_answer) {
    troubles_.unanswered(event.step);
    return unsaved_.unanswered(event.step, event.time_ns);
  }
  if (!troubles_.failed(event.step, event.text, event.time_ns)) return;
  if (troubles_.cause().empty()) return;  // known to another rank
  unsaved_.failed(event.step, troubles_.cause(), event.time_ns);
}

UnsavedWatch::Look SaveMonitor::look(const UnsavedWatch::Daemon& daemon, uint64_t now_ns) {
  UnsavedWatch::Look look = unsaved_.look(daemon, now_ns);
  std::vector<std::string> lines = troubles_.lines(now_ns);
  if (auto line = stalls_.line(now_ns)) lines.push_back(std::move(*line));
  look.lines.insert(look.lines.begin(), std::make_move_iterator(lines.begin()),
                    std::make_move_iterator(lines.end()));
  return look;
}

std::string SaveMonitor::with_cause(const std::string& reason) const {
  const size_t at = reason.rfind(kOtherRankFailed);
  const std::string cause = troubles_.cause().empty() ? unsaved_.cause() : troubles_.cause();
  if (at == std::string::npos || cause.empty()) return reason;
  return reason.substr(0, at) + cause;
}

}  // namespace moetrain
