// The restore planner: view + wanted ranges + what lies in memory -> reads. Pure.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/plan.h"

namespace ckptd {

enum class Source : uint8_t { kMemory = 0, kSegment = 1, kPeer = 2, kTier = 3 };
std::string_view source_name(Source source);  // "memory", "segment", "peer", "tier"

// One whole fragment to bring into a window, and what of it was asked for. A fragment is always
// read whole, because its CRC covers it whole.
struct PlannedRead {
  size_t want = 0;       // index of the wanted range
  ckpt::UnitRange part;  // what the client gets of it
  Source source = Source::kSegment;
  ckpt::SnapshotKey snapshot;
  FragmentPlace place;
  bool operator==(const PlannedRead&) const = default;
};

// The segment of a version that no disk has.
inline constexpr ckpt::SegmentId kNoSegment = 0;
inline bool memory_only(const UnitVersion& version) {
  return !version.fragments.empty() && version.fragments.front().segment == kNoSegment;
}

struct RestoreRequest {
  ckpt::RunId run = 0;
  ViewPoint point;
  std::vector<ckpt::UnitRange> wants;
  bool exact = false;  // a unit that cannot be had as of the view is an error, not an older version
  bool memory = false;  // versions that are only in memory count as well
};

// What the planner may ask. Pure: the answers are all it knows.
struct RestoreOracle {
  // As Catalog::newest_version at the request's point.
  std::function<std::optional<UnitVersion>(ckpt::UnitId, const std::optional<ckpt::SnapshotKey>&)>
      newest_version;
  // As Catalog::damaged_version at the request's point; empty: nothing is damaged.
  std::function<std::optional<DamagedVersion>(ckpt::UnitId)> damaged_version;
  // Empty: nothing is.
  std::function<bool(const ckpt::SnapshotKey&, ckpt::UnitId, const FragmentPlace&)> in_memory;
  // The error of answers that may lack something, because the catalog could not be read. Empty:
  // they never do.
  std::function<Status()> health;
  // For messages only.
  std::string run_name;
  std::function<std::string(ckpt::UnitId)> unit_name;
};
// Asks this catalog, which must outlive the oracle. `in_memory` may be empty: nothing is.
RestoreOracle catalog_oracle(
    const Catalog& catalog, const RestoreRequest& request,
    std::function<bool(const ckpt::SnapshotKey&, ckpt::UnitId, const FragmentPlace&)> in_memory);

struct WantedVersion {
  ckpt::SnapshotKey snapshot;
  std::string note;  // why it is not the view's own version; empty if it is
  bool memory_only = false;
};
struct RestorePlan {
  std::vector<WantedVersion> versions;  // one per want
  std::vector<PlannedRead> reads;       // memory first, then by segment and offset
  uint64_t bytes_memory = 0;            // of whole fragments, each counted once
  uint64_t bytes_segment = 0;
};
// Where the view lacks a version because its commit is damaged, the older one is planned and the
// note says so; kCorrupt if the request is exact. kNotFound if a wanted unit has no version in the
// view, kInvalidArgument if a range lies outside its unit. All name run, step and unit.
Result<RestorePlan> plan_restore(const RestoreRequest& request, const RestoreOracle& oracle);

// Where bytes of a unit could not be had from: segment, and offset of the fragment in its file; of
// a delta that of its base, if that is what failed.
using FailedPlaces = std::set<std::pair<ckpt::SegmentId, uint64_t>>;

// `failed` of this unit cannot be had, because of `reason`. Every want of the unit is planned anew
// from the newest version before it that shares none of the `places` that failed, unless memory has
// them: fragments of different steps never form one unit. The note of the versions reads "unit X:
// step 20 instead of 25: REASON". kCorrupt if the request is exact or there is no such version; the
// message says the same.
struct FallbackPlan {
  std::vector<size_t> wants;  // of this unit
  WantedVersion version;
  std::vector<PlannedRead> reads;
};
Result<FallbackPlan> plan_fallback(const RestoreRequest& request, const RestoreOracle& oracle,
                                   ckpt::UnitId unit, const ckpt::SnapshotKey& failed,
                                   const std::string& reason, const FailedPlaces& places);

}  // namespace ckptd
