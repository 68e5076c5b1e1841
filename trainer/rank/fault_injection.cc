#include "trainer/rank/fault_injection.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trainer/elastic/stop_signals.h"

namespace moetrain {

namespace {

bool any_until(const std::vector<uint64_t>& steps, uint64_t step) {
  return std::ranges::any_of(steps, [step](uint64_t asked) { return asked <= step; });
}

}  // namespace

void FaultInjection::enter_phase(std::string_view phase) const {
  const std::vector<std::string>& phases = state_.options.kill_in;
  if (std::ranges::find(phases, phase) != phases.end()) die(state_.progress.step, phase);
}

void FaultInjection::before_update(uint64_t step) const {
  if (any_until(state_.options.kill_at, step)) die(step, {});
}

void FaultInjection::step_done(uint64_t step) const {
  if (state_.asked.drain.load() || !any_until(state_.options.leave_after, step)) return;
  ::raise(leave_rank_signal());
}

void FaultInjection::die(uint64_t step, std::string_view phase) const {
  state_.events.write({.step = step}, DyingEvent{std::string(phase)});
  ::kill(::getpid(), SIGKILL);
}

}  // namespace moetrain
