// The restore planner: view + wanted ranges + places of fragments -> reads. Pure.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/sources/sources.h"
#include "formats/plan.h"

namespace ckptd {

// One whole fragment to bring into a window, and the part of it that was requested. A fragment is
// always read whole, because its CRC covers it whole.
struct PlannedRead {
  size_t want = 0;       // index of the wanted range
  ckpt::UnitRange part;  // the part that the client gets
  Place place;           // where it is read
  ckpt::SnapshotKey snapshot;
  FragmentPlace stored;  // the fragment, as the catalog describes it
  bool operator==(const PlannedRead&) const = default;
};

// True if no disk has the version.
inline bool memory_only(const UnitVersion& version) {
  return !version.fragments.empty() && version.fragments.front().segment == kNoSegment;
}

struct RestoreRequest {
  ckpt::RunId run = 0;
  ViewPoint point;
  std::vector<ckpt::UnitRange> wants;
  bool exact = false;   // fail instead of falling back to an older version of a unit
  bool memory = false;  // versions that exist only in memory count as well
};

// Queries of the planner. Pure: the planner knows only the answers.
struct RestoreOracle {
  // Like Catalog::newest_version at the request's point.
  std::function<std::optional<UnitVersion>(ckpt::UnitId, const std::optional<ckpt::SnapshotKey>&)>
      newest_version;
  // Like Catalog::damaged_version at the request's point; empty: nothing is damaged.
  std::function<std::optional<DamagedVersion>(ckpt::UnitId)> damaged_version;
  // Where fragments lie, and the order of the sources.
  PlaceOracle places;
  // Fails if the catalog could not be read, so that answers may be incomplete. Empty: they are
  // always complete.
  std::function<Status()> health;
  // For messages only.
  std::string run_name;
  std::function<std::string(ckpt::UnitId)> unit_name;
};
// Queries this catalog, which must outlive the oracle.
RestoreOracle catalog_oracle(const Catalog& catalog, const RestoreRequest& request,
                             PlaceOracle places);

struct WantedVersion {
  ckpt::SnapshotKey snapshot;
  std::string note;  // why it is not the view's own version; empty if it is
  bool memory_only = false;
};
struct RestorePlan {
  std::vector<WantedVersion> versions;  // one per want
  std::vector<PlannedRead> reads;       // in the order of the sources, then by address
  SourceBytes bytes;                    // of whole fragments, each counted once
};
// If the view's version belongs to a damaged commit, the plan uses the older version and a note
// says so; kCorrupt if the request is exact. kNotFound if a wanted unit has no version in the view,
// kInvalidArgument if a range lies outside its unit, kUnavailable if no source has a fragment. All
// errors name run, step and unit.
Result<RestorePlan> plan_restore(const RestoreRequest& request, const RestoreOracle& oracle);

// Places whose bytes could not be read, and had no further source. For a delta whose base failed,
// the place of the base.
using FailedPlaces = std::set<Place>;

// Version `failed` of this unit is unreadable because of `reason`. Plans every want of the unit
// anew from the newest older version that reads none of the failed `places`, but perhaps the same
// fragments from another source: fragments of different steps never form one unit. The note of the
// versions reads "unit X: step 20 instead of 25: REASON". kCorrupt, with the same message, if the
// request is exact or there is no such version.
struct FallbackPlan {
  std::vector<size_t> wants;  // of this unit
  WantedVersion version;
  std::vector<PlannedRead> reads;
};
Result<FallbackPlan> plan_fallback(const RestoreRequest& request, const RestoreOracle& oracle,
                                   ckpt::UnitId unit, const ckpt::SnapshotKey& failed,
                                   const std::string& reason, const FailedPlaces& places);

}  // namespace ckptd
