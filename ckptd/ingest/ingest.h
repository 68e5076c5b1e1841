// Ingest: what happens to a snapshot, as a pure state machine. Events in, actions out; no I/O, no
// clock of its own, no memory of anything a client could write.
//
// A snapshot belongs to one (lineage, epoch, attempt). It commits when every member has begun it
// with the same plan hash, the declared fragments cover every unit exactly, and every declared
// fragment lies in an extent that was written. It fails when a member disagrees (named), a fragment
// is missing, twice or undeclared (unit and range named), a write fails, its deadline passes (the
// missing ranks named), or a member is lost that had not sealed everything.
//
// A failed snapshot is remembered for a while (limits.h), so that a member that comes late is told
// why instead of waiting for the others. Not thread-safe: loop thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/hash.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/expert_tokens.h"
#include "formats/plan.h"
#include "formats/segment.h"
#include "formats/unit.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;
using Time = std::chrono::nanoseconds;  // virtual: since the daemon started

class Ingest {
 public:
  // One member's part of a snapshot.
  struct Begin {
    ckpt::SnapshotKey snapshot;
    std::string run_name;  // for messages
    ckpt::Rank rank = 0;
    uint32_t group_size = 0;
    ckpt::base::Hash128 plan;                // of the whole plan, all ranks
    std::vector<ckpt::UnitId> units;         // the whole snapshot's, any order
    std::vector<ckpt::UnitId> memory_units;  // those of them that are not written, any order
    std::vector<ckpt::UnitRange> fragments;  // this rank's, any order
    std::map<std::string, double> metrics;   // on conflict the lowest rank's value is kept
    ckpt::ExpertTokenCounts expert_tokens;   // checked; empty, or those that any other rank gives
    Time deadline{};                         // of the snapshot; the first member's counts
  };

  // Every member sealed everything: level `staged`. At most once, before CommitAction.
  struct StagedAction {
    ckpt::SnapshotKey snapshot;
  };
  // All bytes are written: commit now, then call committed(). At most once.
  struct CommitAction {
    ckpt::SnapshotKey snapshot;
    bool full = false;  // makes every unit of the run durable
    ckpt::base::Hash128 plan;
    std::map<std::string, double> metrics;
    ckpt::ExpertTokenCounts expert_tokens;
  };
  // Release everything of it and tell the members. The snapshot is no longer open. At most once.
  struct FailAction {
    ckpt::SnapshotKey snapshot;
    ckpt::Error error;
  };
  using Action = std::variant<StagedAction, CommitAction, FailAction>;
  using Actions = std::vector<Action>;
  // `status` is the answer to the member that sent the event; `actions` are carried out even when
  // it is an error.
  struct Outcome {
    Status status;
    Actions actions;
    bool memory_only = false;  // of sealed(): the slab holds units that are not written
  };

  // A member declares its part. `units` of the run, indexed by UnitId, are shared by its snapshots.
  // A part that makes no sense in itself (unknown unit, range outside it) fails the snapshot, as no
  // attempt with this key can succeed any more. A second begin of one rank is refused, no more.
  Outcome begin(const Begin& begin,
                const std::shared_ptr<const std::vector<ckpt::UnitSpec>>& units);

  // A slab was sealed by this rank. Its fragments are the rank's declared ranges, whole or in
  // pieces, each byte once; what is written and what stays in memory lies in slabs of its own. An
  // error refuses the slab and fails the snapshot. If the status is ok,
  // exactly one written() must follow, whatever becomes of the snapshot.
  Outcome sealed(const ckpt::SnapshotKey& snapshot, ckpt::Rank rank,
                 const std::vector<ckpt::ExtentFragment>& fragments);
  // The extent of a sealed slab was written, or it was checked if it stays in memory; or not.
  // Ignored if the snapshot has failed since.
  Actions written(const ckpt::SnapshotKey& snapshot, const Status& status);
  // The commit record is durable, or not (then this is a failure of the snapshot).
  Actions committed(const ckpt::SnapshotKey& snapshot, const Status& status);

  // Has no effect on a snapshot that is being committed: its record may be durable already.
  Actions abort(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error);
  // A member's begin was turned down for a reason that ingest does not know: no attempt with this
  // key can succeed, and members that come later are told the same. `error` is named already.
  Actions refuse(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error);
  // A member is gone (died, left, or went on to the next epoch): snapshots of the epoch that it had
  // sealed completely go on, the others fail with a message that ends in `how`.
  Actions member_lost(ckpt::RunId run, ckpt::Epoch epoch, ckpt::Rank rank, const std::string& how);
  // Fails what is past its deadline.
  Actions tick(Time now);

  bool is_open(const ckpt::SnapshotKey& snapshot) const;
  bool is_staged(const ckpt::SnapshotKey& snapshot) const;
  std::vector<ckpt::SnapshotKey> open(ckpt::RunId run) const;
  size_t open_count() const;
  // Why it failed, as long as that is remembered.
  std::optional<ckpt::Error> failure(const ckpt::SnapshotKey& snapshot) const;

  Ingest();
  ~Ingest();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
