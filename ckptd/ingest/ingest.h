// Ingest: what happens to a snapshot, as a pure state machine. Events in, actions out; no I/O, no
// clock of its own, no memory of anything a client could write.
//
// A snapshot belongs to one (lineage, epoch, attempt). It commits when every member has begun it
// with the same plan hash, the declared fragments cover every unit exactly, and every declared
// fragment lies in an extent that was written. It fails when a member disagrees (named), a fragment
// is missing, twice or undeclared (unit and range named), a write fails, its deadline passes (the
// missing ranks named), or a member is lost that had not sealed everything.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/hash.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/plan.h"
#include "formats/segment.h"
#include "formats/unit.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;
using Time = std::chrono::nanoseconds;  // virtual: since the daemon started

class Ingest {
 public:
  struct Begin {
    ckpt::SnapshotKey snapshot;
    ckpt::Rank rank = 0;
    uint32_t group_size = 0;
    ckpt::base::Hash128 plan;
    std::vector<ckpt::UnitId> units;
    std::vector<ckpt::UnitRange> fragments;  // this rank's
    std::map<std::string, double> metrics;
    Time deadline{};
  };
  // Commit: all bytes written, in the order of `extents` as given to written().
  struct CommitAction {
    ckpt::SnapshotKey snapshot;
    bool full = false;
    ckpt::base::Hash128 plan;
    std::map<std::string, double> metrics;
  };
  struct FailAction {
    ckpt::SnapshotKey snapshot;
    ckpt::Error error;
  };
  using Action = std::variant<CommitAction, FailAction>;
  using Actions = std::vector<Action>;

  // `units` of the run, indexed by UnitId; shared by all its snapshots.
  Result<Actions> begin(const Begin& begin,
                        std::shared_ptr<const std::vector<ckpt::UnitSpec>> units);
  // A slab was sealed by this rank. An error refuses the slab and fails the snapshot (see actions).
  Result<Actions> sealed(const ckpt::SnapshotKey& snapshot, ckpt::Rank rank,
                         const std::vector<ckpt::ExtentFragment>& fragments);
  // The extent of a sealed slab was written, or not.
  Actions written(const ckpt::SnapshotKey& snapshot, const Status& status);
  // The commit record is durable, or not. The snapshot is forgotten.
  void committed(const ckpt::SnapshotKey& snapshot);
  Actions abort(const ckpt::SnapshotKey& snapshot, const std::string& reason);
  // A member is gone: snapshots of the epoch it had sealed completely go on, the others fail.
  Actions member_lost(ckpt::RunId run, ckpt::Epoch epoch, ckpt::Rank rank);
  Actions tick(Time now);

  bool is_open(const ckpt::SnapshotKey& snapshot) const;
  // Every member sealed everything: level `staged`.
  bool is_staged(const ckpt::SnapshotKey& snapshot) const;
  std::vector<ckpt::SnapshotKey> open(ckpt::RunId run) const;
  size_t open_count() const;

  Ingest();
  ~Ingest();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
