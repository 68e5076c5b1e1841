// Scrub: handling of damage, and of bytes that could not be checked.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "ckptd/catalog/damaged_commits.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/scrub/scrub.h"
#include "formats/selector.h"

namespace ckptd {

void Scrub::found(const std::vector<VerifyError>& errors) {
  const uint64_t now_ns = errors.empty() ? 0 : options_.wall_clock_ns();
  for (const VerifyError& error : errors) {
    if (error.damage) {
      found_damage(error, now_ns);
    } else {
      record_unchecked(error);
    }
  }
}

namespace {

// Prefix for the unit in a sentence: empty for the journal, which belongs to no run.
std::string unit_prefix(const VerifyError& error) {
  if (error.run.empty()) return {};
  return ckpt::commit_name(error.run, error.lineage, error.step) + " unit ";
}

// The recorded damage of a finding's unit.
std::vector<ScrubDamage>::iterator known_damage(std::vector<ScrubDamage>& damages,
                                                const VerifyError& error) {
  const auto key = [](const auto& of) { return std::tie(of.run, of.lineage, of.step, of.unit); };
  return std::ranges::find_if(damages, [&](const auto& of) { return key(of) == key(error); });
}

}  // namespace

void Scrub::found_damage(const VerifyError& error, uint64_t now_ns) {
  ++counters_.errors;
  const Kept kept = keep_damage(error, now_ns);
  if (kept == Kept::kNoRoom) ++state_.damages_left_out;
  if (kept == Kept::kKnown) return;
  log_event(has_a_line(error) ? spdlog::level::err : spdlog::level::debug, "scrub_damage",
            {{"run", error.run},
             {"lineage", error.lineage},
             {"step", error.step},
             {"unit", error.unit},
             {"reason", error.reason}},
            "scrub: {}{}: damaged: {}", unit_prefix(error), error.unit, error.reason);
}

// Bounds the lines per segment file. The first one of a missing file, and the last one, say more.
bool Scrub::has_a_line(const VerifyError& error) {
  const uint64_t lines = ++damage_lines_[error.place.segment];
  if (const auto missing = missing_file_of(error.reason); lines == 1 && !missing.empty()) {
    spdlog::error(
        "scrub: {} is missing, and commits need it: put it back, or restores take older versions",
        missing);
  }
  if (lines == limits::kDamageLinesMax + 1) {
    spdlog::error("scrub: more units are damaged like that; `ckptctl scrub --status` lists them");
  }
  return lines <= limits::kDamageLinesMax;
}

Scrub::Kept Scrub::keep_damage(const VerifyError& error, uint64_t now_ns) {
  std::vector<ScrubDamage>& damages = state_.damages;
  auto place = known_damage(damages, error);
  const bool known = place != damages.end();
  if (!known && damages.size() < limits::kScrubDamagesMax) {
    place = damages.emplace(damages.end());
  } else if (!known) {
    // Replaces an entry from before this pass. If it still holds, the pass finds it again.
    place = std::ranges::find_if(damages, [&](const auto& of) { return of.pass < newest_pass(); });
    if (place == damages.end()) return Kept::kNoRoom;
  }
  *place = {error.run,    error.lineage, error.step,    error.unit,
            error.reason, now_ns,        newest_pass(), error.place};
  return known ? Kept::kKnown : Kept::kNew;
}

void Scrub::verified(const VerifyReport& report, const std::vector<std::string>& whole_runs,
                     uint64_t began_ns) {
  if (closed_ || !loaded_) return;
  const uint64_t now_ns = options_.wall_clock_ns();
  uint64_t no_room = report.errors_left_out;
  for (const VerifyError& error : report.errors) {
    if (keep_damage(error, now_ns) == Kept::kNoRoom) ++no_room;
  }
  // Repeated verifies must not count findings twice.
  state_.damages_left_out = std::max(state_.damages_left_out, no_room);
  bool said_all = report.errors_left_out == 0 && report.unchecked_left_out == 0;
  std::set<std::tuple<std::string, ckpt::LineageId, ckpt::Step, std::string>> unchecked;
  for (const VerifyError& error : report.unchecked) {
    unchecked.emplace(error.run, error.lineage, error.step, error.unit);
    // Without the catalog the targets of the verify are unknown.
    if (error.run.empty() && error.unit == kCatalogDirectory) said_all = false;
  }
  std::erase_if(state_.damages, [&](const ScrubDamage& damage) {
    return said_all && damage.found_ns < began_ns &&
           std::ranges::find(whole_runs, damage.run) != whole_runs.end() &&
           !unchecked.contains({damage.run, damage.lineage, damage.step, damage.unit});
  });
  save();
}

namespace {

// True if the damage's commit exists, and is damaged as a whole: no view needs its bytes.
bool is_marked_damaged(const Catalog& catalog, ckpt::RunId run, const ScrubDamage& damage) {
  const auto commit = catalog.commit(run, damage.lineage, damage.step);
  return commit && commit->damaged && !commit->deleted;
}

// Adds the damage, or updates the entry for the same bytes, commit and unit.
void add_damage(std::vector<ScrubDamage>& damages, ScrubDamage damage) {
  const auto known = std::ranges::find_if(damages, [&](const ScrubDamage& other) {
    return other.run == damage.run && other.lineage == damage.lineage &&
           other.step == damage.step && other.unit == damage.unit && other.place == damage.place;
  });
  if (known == damages.end()) {
    damages.push_back(std::move(damage));
  } else if (std::tie(known->pass, known->found_ns) < std::tie(damage.pass, damage.found_ns)) {
    *known = std::move(damage);
  }
}

}  // namespace

std::optional<ScrubDamage> Scrub::still_needed(ScrubDamage damage, ckpt::RunId run,
                                               const std::vector<ckpt::UnitSpec>& units,
                                               size_t& holders_left) const {
  const auto commits = dependent_commits(catalog_, damage, run, units, holders_left);
  if (!commits.empty()) {
    damage.lineage = commits.front().lineage;
    damage.step = commits.front().step;
    return damage;
  }
  // Some holders may be left out, or the commit is marked as damaged, so no view needs its bytes.
  if (holders_left > 0 && !is_marked_damaged(catalog_, run, damage)) return std::nullopt;
  return damage;
}

void Scrub::deleted(const RunInfo& run, const std::set<ViewPoint>& commits) {
  if (closed_ || !loaded_ || state_.damages.empty()) return;
  const bool removed = !catalog_.run(run.id).ok();
  const auto units = catalog_.units(run.id);
  // With an unreadable catalog it would look as if no commit needed the bytes.
  if (!catalog_.health().ok() || (!removed && !units.ok())) return;
  const auto is_touched = [&](const ScrubDamage& damage) {
    const ViewPoint writer{damage.place.written_by_lineage, damage.place.written_by_step};
    return is_of_run(damage, run) &&
           (removed || commits.contains({damage.lineage, damage.step}) || commits.contains(writer));
  };
  size_t holders_left = limits::kDamageHoldersMax;
  std::vector<ScrubDamage> left;
  left.reserve(state_.damages.size());
  for (const ScrubDamage& known : state_.damages) {
    std::optional<ScrubDamage> damage = known;
    if (is_touched(known)) {
      damage = removed ? std::nullopt : still_needed(known, run.id, **units, holders_left);
    }
    if (damage) add_damage(left, std::move(*damage));
  }
  if (!catalog_.health().ok() || left == state_.damages) return;
  state_.damages = std::move(left);
  // Damage beyond the list's limit may be of any run: it is reported until the next pass.
  const std::vector<RunInfo> runs = catalog_.runs();
  const bool no_other = std::ranges::all_of(
      runs, [&](const RunInfo& other) { return other.id == run.id && removed; });
  if (state_.damages.empty() && no_other) state_.damages_left_out = 0;
  save();
}

// Recorded damage of the unit stays, because this pass did not disprove it. Logs one line per
// cause, however many units it affects.
void Scrub::record_unchecked(const VerifyError& error) {
  const auto known = known_damage(state_.damages, error);
  if (known != state_.damages.end()) known->pass = newest_pass();
  if (!commit_is_new_ && state_.pass) {
    ++state_.pass->unchecked;
    state_.pass->unchecked_reason = error.reason;
  }
  // The cause is at the end of the reason, after the place.
  const std::string cause = error.reason.substr(error.reason.rfind(": ") + 1);
  if (std::exchange(logged_unchecked_, cause) == cause) return;
  spdlog::warn("scrub: {}{}: could not be checked: {}", unit_prefix(error), error.unit,
               error.reason);
}

}  // namespace ckptd
