// Catalog: the index over the journal. Everything in it can be made anew from there.
//
// apply() folds one journal record into it, in sequence order; it is the same for a live commit, a
// replay at start and a rebuild. Values live in an ordered key-value store behind KvStore: RocksDB,
// or an in-memory twin that in simulation keeps any prefix of its batches.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/kv_store.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/journal.h"
#include "formats/unit.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;

struct RunInfo {
  ckpt::RunId id = 0;
  std::string name;
  uint32_t uid = 0;
  uint64_t created_ns = 0;
  ckpt::LineageId current_lineage = 0;
  ckpt::Epoch last_epoch = 0;
  std::string metadata;  // JSON given by the trainer
  uint64_t commits = 0;
  uint64_t bytes = 0;
};

struct Lineage {
  ckpt::LineageId id = 0;
  ckpt::LineageId parent = 0;  // 0: starts from nothing
  ckpt::Step fork_step = 0;
};

// A place of bytes on disk that holds part of a unit version.
struct FragmentPlace {
  uint64_t offset = 0;  // in the unit
  uint64_t length = 0;
  uint32_t crc32c = 0;
  uint32_t codec = 0;
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;   // of the extent header in the segment
  uint64_t payload_offset = 0;  // of the fragment in the segment file
};

// One unit as of one commit.
struct UnitVersion {
  ckpt::UnitId unit = 0;
  ckpt::SnapshotKey snapshot;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;                   // of the whole unit
  std::vector<FragmentPlace> fragments;  // ascending by offset, covering the unit exactly
};

struct CommitInfo {
  ckpt::SnapshotKey snapshot;
  uint64_t sequence = 0;  // of its journal record: the order of commits
  uint64_t time_ns = 0;
  uint64_t bytes = 0;
  bool full = false;
  bool damaged = false;
  bool deleted = false;
  std::vector<ckpt::UnitId> units;
  std::map<std::string, double> metrics;
};

// RUN@STEP and its relatives, resolved.
struct ViewPoint {
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  bool operator==(const ViewPoint&) const = default;
};

class Catalog {
 public:
  explicit Catalog(std::unique_ptr<KvStore> store);
  ~Catalog();

  // Folds a record in. Records at or below applied_sequence() are ignored (replay is idempotent).
  Status apply(uint64_t sequence, const ckpt::fb::RecordT& record);
  uint64_t applied_sequence() const;
  // Empties it, for a rebuild.
  Status clear();

  std::vector<RunInfo> runs() const;
  Result<RunInfo> run(std::string_view name) const;  // kNotFound: "run X: no such run"
  Result<RunInfo> run(ckpt::RunId id) const;
  Result<std::vector<ckpt::UnitSpec>> units(ckpt::RunId run) const;  // index = UnitId
  Result<std::vector<Lineage>> lineages(ckpt::RunId run) const;
  std::vector<CommitInfo> commits(ckpt::RunId run) const;  // oldest first
  std::optional<CommitInfo> commit(ckpt::RunId run, ckpt::LineageId lineage, ckpt::Step step) const;
  std::map<std::string, ViewPoint> tags(ckpt::RunId run) const;

  // The newest version of the unit at or before the point: in the point's lineage, then in each
  // ancestor up to its fork step. `before` excludes that snapshot and newer ones: used to fall back
  // when a version turned out damaged.
  std::optional<UnitVersion> newest_version(ckpt::RunId run, ckpt::UnitId unit, ViewPoint point,
                                            const std::optional<ckpt::SnapshotKey>& before) const;
  std::vector<UnitVersion> versions(ckpt::RunId run, ckpt::UnitId unit) const;  // all lineages

  // The newest complete view of the lineage (0: the current one), ancestors included.
  std::optional<ViewPoint> latest_complete(ckpt::RunId run, ckpt::LineageId lineage) const;
  // Does the view at the point have every registered unit?
  bool complete(ckpt::RunId run, ViewPoint point) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
