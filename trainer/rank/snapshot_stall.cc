#include "trainer/rank/snapshot_stall.h"

#include <algorithm>

namespace moetrain {

void SnapshotStall::add(const Snapshotter::Waits& before, const Snapshotter::Waits& now,
                        uint64_t silence_ms) {
  auto silent_ms = static_cast<double>(silence_ms);
  const auto answered_ms = [&silent_ms](double waited_ms) {
    const double answered = std::max(0.0, waited_ms - silent_ms);
    silent_ms -= waited_ms - answered;
    return answered;
  };
  waits.slabs_ms += answered_ms(now.slabs_ms - before.slabs_ms);
  waits.room_ms += answered_ms(now.room_ms - before.room_ms);
  waits.open = now.open;
}

namespace {

double milliseconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

double StallClock::take() {
  return milliseconds_of(std::exchange(all_, std::chrono::nanoseconds::zero()));
}

double StallClock::take(uint64_t step) {
  const auto found = by_step_.find(step);
  if (found == by_step_.end()) return 0;
  const double ms = milliseconds_of(found->second);
  by_step_.erase(found);
  return ms;
}

void StallClock::reset() {
  all_ = {};
  by_step_.clear();
}

void StallClock::add(std::optional<uint64_t> step, std::chrono::nanoseconds blocked) {
  all_ += blocked;
  if (step) by_step_[*step] += blocked;
}

}  // namespace moetrain
