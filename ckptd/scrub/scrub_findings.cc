// Scrub: what becomes of damage that it finds, and of what it could not check.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/scrub/scrub.h"

namespace ckptd {

void Scrub::found(const std::vector<VerifyError>& errors) {
  const uint64_t now_ns = errors.empty() ? 0 : options_.wall_clock_ns();
  for (const VerifyError& error : errors) {
    if (error.damage) {
      found_damage(error, now_ns);
    } else {
      could_not_check(error);
    }
  }
}

namespace {

// Names the unit of a finding in a sentence: empty for the journal, which is of no run.
std::string whose(const VerifyError& error) {
  if (error.run.empty()) return {};
  return fmt::format("run {} lineage {} step {} unit ", error.run, error.lineage, error.step);
}

// The damage that is known of the unit of a finding.
std::vector<ScrubDamage>::iterator known_damage(std::vector<ScrubDamage>& damages,
                                                const VerifyError& error) {
  const auto key = [](const auto& of) { return std::tie(of.run, of.lineage, of.step, of.unit); };
  return std::ranges::find_if(damages, [&](const auto& of) { return key(of) == key(error); });
}

}  // namespace

void Scrub::found_damage(const VerifyError& error, uint64_t now_ns) {
  std::vector<ScrubDamage>& damages = state_.damages;
  ++counters_.errors;
  auto place = known_damage(damages, error);
  if (place == damages.end()) {
    log_event(spdlog::level::err, "scrub_damage",
              {{"run", error.run},
               {"lineage", error.lineage},
               {"step", error.step},
               {"unit", error.unit},
               {"reason", error.reason}},
              "scrub: {}{}: damaged: {}", whose(error), error.unit, error.reason);
    if (damages.size() < limits::kScrubDamagesMax) {
      place = damages.emplace(damages.end());
    } else {
      // In place of one that may be gone: of before this pass.
      place =
          std::ranges::find_if(damages, [&](const auto& of) { return of.pass < newest_pass(); });
      ++state_.damages_left_out;
      if (place == damages.end()) return;
    }
  }
  *place = {error.run, error.lineage, error.step, error.unit, error.reason, now_ns, newest_pass()};
}

// Damage that is known of the unit stays known: this pass did not see it gone. One line for each
// cause, however many units it keeps from being checked.
void Scrub::could_not_check(const VerifyError& error) {
  const auto known = known_damage(state_.damages, error);
  if (known != state_.damages.end()) known->pass = newest_pass();
  if (!commit_is_new_ && state_.pass) {
    ++state_.pass->unchecked;
    state_.pass->unchecked_reason = error.reason;
  }
  // The cause comes last in a reason, behind the place.
  const std::string cause = error.reason.substr(error.reason.rfind(": ") + 1);
  if (std::exchange(told_unchecked_, cause) == cause) return;
  spdlog::warn("scrub: {}{}: could not be checked: {}", whose(error), error.unit, error.reason);
}

}  // namespace ckptd
