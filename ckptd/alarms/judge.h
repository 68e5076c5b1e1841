// Judges a snapshot that is about to be committed: values in, a list of alarms out.
//
//   not finite  floats that are NaN or infinite (not_finite.h found them)
//   unchanged   a unit whose bytes have the CRC32C of its last version: training moves every
//               parameter. Equal checksums suggest that, but prove nothing. Exempt: an expert
//               without tokens in between, by the counts of both commits, and a unit that its
//               trainer registered as constant (unit_flags.h).
//   stale       an expert that the plan leaves out, with a version older than the run allows
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

struct SnapshotFacts {
  ckpt::Step step = 0;
  ckpt::Step lineage_began = 0;  // a unit without a version is as old as this
  ckpt::Step staleness_max = 0;  // steps; 0: no limit
  // A unit from here on is grown: without a version it does not belong to the view.
  ckpt::UnitId base_units = ~ckpt::UnitId{0};
  std::vector<std::pair<ckpt::UnitId, uint32_t>> saved;  // CRC32C of each; ascending by unit
  std::map<ckpt::UnitId, uint64_t> not_finite;
  std::function<bool(ckpt::UnitId)> constant;  // registered as constant; empty: no unit is
  ckpt::ExpertTokenCounts tokens;              // in this commit; may be empty
};

// By UnitId, as of before the snapshot. Entries that are not older than the snapshot are skipped.
// Empty: unknown; then only `not finite` is judged.
using NewestVersions = std::vector<std::optional<UnitSum>>;

struct Judgement {
  ckpt::AlarmList alarms;
  // By kind, including alarms that did not fit into the list.
  std::array<uint64_t, ckpt::kAlarmKinds> raised{};
};

// `tokens_at`: the counts of an older commit. Called only for commits of unchanged units.
Judgement judge(const SnapshotFacts& facts, const std::vector<ckpt::UnitSpec>& units,
                const NewestVersions& newest,
                const std::function<ckpt::ExpertTokenCounts(ViewPoint)>& tokens_at);

}  // namespace ckptd
