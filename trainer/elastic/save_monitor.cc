#include "trainer/elastic/save_monitor.h"

#include <utility>

namespace moetrain {

using Kind = RankEvent::Kind;

void SaveMonitor::add(const RankEvent& event) {
  switch (event.kind) {
    case Kind::kTraining:
      if (event.epoch <= epoch_) return;  // another rank of the same group
      epoch_ = event.epoch;
      // Survivors go on with what they have; whoever resumes goes back to what is saved.
      if (event.goes_on) return unsaved_.goes_on();
      return unsaved_.begins(event.step, event.time_ns);
    case Kind::kStep:
      unsaved_.stepped(event.step);
      if (auto line = stalls_.stepped(event)) lines_.push_back(std::move(*line));
      return;
    case Kind::kGroupLost:
    case Kind::kRegrouping:
      return unsaved_.goes_on();  // the last checkpoint begins anew with the next group
    case Kind::kSaving:
      return unsaved_.saving(event.step, event.time_ns);
    case Kind::kSnapshot:
      return add_snapshot(event);
    default:
      return;
  }
}

void SaveMonitor::add_snapshot(const RankEvent& event) {
  if (event.durable) {
    stalls_.durable(event.bytes, event.durable_ms);
    troubles_.durable(event.step);
    return unsaved_.durable(event.step, event.time_ns);
  }
  // A ckptd that does not answer is told once, by UnsavedWatch, not for each checkpoint.
  if (event.no_answer) return;
  troubles_.failed(event.step, event.text, event.time_ns);
  if (troubles_.cause().empty()) return;  // known to another rank
  unsaved_.failed(event.step, troubles_.cause(), event.time_ns);
}

UnsavedWatch::Look SaveMonitor::look(const UnsavedWatch::Daemon& daemon, uint64_t now_ns) {
  UnsavedWatch::Look look = unsaved_.look(daemon, now_ns);
  std::vector<std::string> lines = std::exchange(lines_, {});
  for (std::string& line : troubles_.lines(now_ns)) lines.push_back(std::move(line));
  look.lines.insert(look.lines.begin(), std::make_move_iterator(lines.begin()),
                    std::make_move_iterator(lines.end()));
  return look;
}

std::string SaveMonitor::with_cause(const std::string& reason) const {
  const size_t at = reason.rfind(kOtherRankFailed);
  if (at == std::string::npos || troubles_.cause().empty()) return reason;
  return reason.substr(0, at) + troubles_.cause();
}

}  // namespace moetrain
