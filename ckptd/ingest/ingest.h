// Ingest: the life of a snapshot, as a pure state machine. Events in, actions out; no I/O, no own
// clock, no memory that a client could write.
//
// A snapshot belongs to one (lineage, epoch, attempt). It commits when every member has begun it
// with the same plan hash, the declared fragments cover every unit exactly, and every declared
// fragment and blob lies in a written extent. It fails when a member disagrees (named), a fragment
// is missing, duplicate or undeclared (unit and range named), a write fails, its deadline passes
// (missing ranks named), or a member is gone that had not sealed everything.
//
// A failed snapshot is remembered for a while (limits.h), so that a late member gets the reason
// instead of waiting for the others. Not thread-safe: loop thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/hash.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/blob.h"
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
    std::vector<ckpt::UnitId> memory_units;  // units that are not written, any order
    std::vector<ckpt::UnitRange> fragments;  // this rank's, any order
    std::vector<ckpt::BlobSpec> blobs;       // this rank's, checked; by their position
    std::map<std::string, double> metrics;   // on conflict the lowest rank's value is kept
    ckpt::ExpertTokenCounts expert_tokens;   // checked; empty, or the same as other ranks'
    Time deadline{};                         // of the snapshot; the first member's value counts
    // Units that the run has; those of the list from here on are a growth, which the snapshot must
    // write. By default all.
    size_t known_units = SIZE_MAX;
    // Known units that do not belong to a view here, ascending; the first member's list counts.
    std::vector<ckpt::UnitId> absent;
  };

  // Every member sealed everything: level `staged`. At most once, before CommitAction.
  struct StagedAction {
    ckpt::SnapshotKey snapshot;
  };
  // All bytes are written: commit now, then call committed(). At most once.
  struct CommitAction {
    ckpt::SnapshotKey snapshot;
    bool full = false;  // makes every unit durable that belongs to its view
    ckpt::base::Hash128 plan;
    std::map<std::string, double> metrics;
    ckpt::ExpertTokenCounts expert_tokens;
    std::map<ckpt::UnitId, ckpt::BlobSpec> blobs;  // of all ranks, by id
    ckpt::UnitId first_grown = 0;                  // id of the first one of the next
    std::vector<ckpt::UnitSpec> grown;             // by which the run grows
  };
  // Release all its resources and tell the members. The snapshot is no longer open. At most once.
  struct FailAction {
    ckpt::SnapshotKey snapshot;
    ckpt::Error error;
  };
  using Action = std::variant<StagedAction, CommitAction, FailAction>;
  using Actions = std::vector<Action>;
  // `status` is the answer to the member that sent the event; the caller executes `actions` even
  // after an error.
  struct Outcome {
    Status status;
    Actions actions;
    bool memory_only = false;  // of sealed(): the slab holds units that are not written
  };

  // A member declares its part. `units` of the run and of the member's growth, indexed by UnitId.
  // The growth must be the same for all members.
  // An invalid part (unknown unit, range outside it) fails the snapshot, because no attempt with
  // this key can succeed. A second begin of one rank is only refused.
  Outcome begin(const Begin& begin,
                const std::shared_ptr<const std::vector<ckpt::UnitSpec>>& units);
  // The caller cannot serve a begin that has just succeeded: fails the snapshot. The actions of
  // that begin, perhaps a CommitAction, are void: the caller must not have executed them.
  Actions cancel_begin(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error);

  // This rank sealed a slab. Its fragments are the rank's declared ranges and blobs, whole or in
  // pieces, each byte once. A slab has either fragments to write or fragments that stay in memory.
  // An error refuses the slab and fails the snapshot, unless it is being committed. If the status
  // is ok, exactly one written() must follow, even if the snapshot fails.
  Outcome sealed(const ckpt::SnapshotKey& snapshot, ckpt::Rank rank,
                 const std::vector<ckpt::ExtentFragment>& fragments);
  // The sealed slab's extent was written, or checked if it stays in memory; or that failed. Ignored
  // if the snapshot has failed.
  Actions written(const ckpt::SnapshotKey& snapshot, const Status& status);
  // The commit record is durable; an error fails the snapshot.
  Actions committed(const ckpt::SnapshotKey& snapshot, const Status& status);

  // Has no effect on a snapshot that is being committed: its record may be durable already.
  Actions abort(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error);
  // A member's begin was refused for a reason outside ingest: no attempt with this key can succeed,
  // and later members get the same error. `error` already names the snapshot.
  Actions refuse(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error);
  // A member is gone (died, left, or moved to the next epoch). Snapshots of the epoch that it had
  // sealed completely continue; the others fail with a message that ends in `how`.
  Actions member_gone(ckpt::RunId run, ckpt::Epoch epoch, ckpt::Rank rank, const std::string& how);
  // Fails snapshots past their deadline.
  Actions tick(Time now);

  bool is_open(const ckpt::SnapshotKey& snapshot) const;
  bool is_staged(const ckpt::SnapshotKey& snapshot) const;
  // The units of an open snapshot, with its growth.
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> units(const ckpt::SnapshotKey& snapshot) const;
  std::vector<ckpt::SnapshotKey> open(ckpt::RunId run) const;
  size_t open_count() const;
  // Why the snapshot failed, as long as that is remembered.
  std::optional<ckpt::Error> failure(const ckpt::SnapshotKey& snapshot) const;

  Ingest();
  ~Ingest();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
