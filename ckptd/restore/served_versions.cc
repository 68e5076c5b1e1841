#include "ckptd/restore/served_versions.h"

#include <utility>

namespace ckptd {

const ServedVersions::Failures& ServedVersions::add_failure(ckpt::UnitId unit, const Place& place,
                                                            const std::string& reason) {
  Failures& failures = failures_[unit];
  if (failures.places.empty()) {
    failures.first_reason = reason;
  } else {
    ++failures.others;
  }
  failures.places.insert(place);
  return failures;
}

void ServedVersions::fall_back(ckpt::UnitId unit, const FallbackPlan& plan) {
  serving_[unit] = plan.version.snapshot;
  notes_[unit] = {.unit = unit,
                  .wants = {plan.wants.begin(), plan.wants.end()},
                  .snapshot = plan.version.snapshot,
                  .note = plan.version.note};
}

void ServedVersions::change_source(ckpt::UnitId unit, const ckpt::SnapshotKey& snapshot,
                                   const std::vector<size_t>& wants,
                                   const std::function<std::string()>& note) {
  std::set<size_t> changed;
  for (const size_t want : wants) {
    if (noted_.insert(want).second) changed.insert(want);
  }
  if (changed.empty()) return;
  RestoreNote& news = notes_[unit];
  news.wants.merge(changed);
  if (!news.note.empty()) return;
  news.unit = unit;
  news.snapshot = snapshot;
  news.note = note();
}

std::vector<RestoreNote> ServedVersions::take_notes() {
  std::vector<RestoreNote> taken;
  taken.reserve(notes_.size());
  for (auto& [unit, note] : notes_) taken.push_back(std::move(note));
  notes_.clear();
  return taken;
}

}  // namespace ckptd
