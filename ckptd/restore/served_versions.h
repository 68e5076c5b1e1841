// ServedVersions: the snapshot that serves each wanted unit of one restore, and the notes for the
// client about every change of version or source.
//
// Pure: RestoreJob reports failures and fallbacks. Notes wait here for the next window.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ckptd/restore/restore.h"
#include "formats/base/counted.h"

namespace ckptd {

class ServedVersions {
 public:
  // Places of a unit that could not be read. A unit may fall back through a long history, so only
  // the first reason is kept: that of the version which the restore asked for.
  struct Failures {
    FailedPlaces places;
    std::string first_reason;
    size_t others = 0;

    std::string reasons() const {
      return others == 0 ? first_reason
                         : fmt::format("{} (and {} after it)", first_reason,
                                       ckpt::base::counted(others, "failed read"));
    }
  };

  void plan(ckpt::UnitId unit, const ckpt::SnapshotKey& snapshot) { serving_[unit] = snapshot; }
  // False once the unit has fallen back to an older snapshot. The unit must be planned.
  bool is_served_from(ckpt::UnitId unit, const ckpt::SnapshotKey& snapshot) const {
    return serving_.at(unit) == snapshot;
  }

  // Adds a failure; returns all failures of the unit in this restore.
  const Failures& add_failure(ckpt::UnitId unit, const Place& place, const std::string& reason);
  // The unit is served from the version of `plan` from now on. Replaces the unit's note.
  void fall_back(ckpt::UnitId unit, const FallbackPlan& plan);
  // The wants get the unit's bytes from another source of the same snapshot. Each want is noted
  // once. `note` makes the text, and is called only if the unit has no note yet.
  void change_source(ckpt::UnitId unit, const ckpt::SnapshotKey& snapshot,
                     const std::vector<size_t>& wants, const std::function<std::string()>& note);
  // Notes since the last call, by unit.
  std::vector<RestoreNote> take_notes();

 private:
  // By wanted unit.
  std::map<ckpt::UnitId, ckpt::SnapshotKey> serving_;
  std::map<ckpt::UnitId, Failures> failures_;
  std::map<ckpt::UnitId, RestoreNote> notes_;
  std::set<size_t> noted_;  // wants with a note about a change of source
};

}  // namespace ckptd
