// BeginChecks: checks whether a member may begin a snapshot. Reads history and the open snapshots,
// and changes nothing. Loop thread only.
#pragma once

#include "ckptd/ingest/ingest.h"
#include "ckptd/snapshots/growth.h"
#include "ckptd/snapshots/needs.h"

namespace ckptd {

class BeginChecks {
 public:
  BeginChecks(const SnapshotNeeds& needs, const Ingest& ingest) : needs_(needs), ingest_(ingest) {}

  // The snapshot of a member's message. Fails if the session is no member of that epoch.
  Result<ckpt::SnapshotKey> member_key(const Session& session, ckpt::Epoch epoch, ckpt::Step step,
                                       uint32_t attempt) const;
  // The units that the snapshot may hold: those of the run, and the member's growth.
  struct Units {
    UnitSpecList all;
    size_t known = 0;  // of the run
    size_t base = 0;   // of its first registration
    Growth growth;     // as the member sent it: the run may have a part of it
  };
  // Fails if the growth contradicts the run, or another open snapshot of it.
  Result<Units> units(const ckpt::SnapshotKey& key, const ckpt::fb::BeginSnapshotT& message) const;
  // Checks that need no snapshot. The caller adds `key` to the message.
  Status check(const Session& session, const ckpt::SnapshotKey& key, const Units& units,
               const ckpt::fb::BeginSnapshotT& message) const;
  // The member's part, for ingest. Precondition: the session is a member.
  Result<Ingest::Begin> make_begin(const Session& session, const ckpt::SnapshotKey& key,
                                   const Units& units,
                                   const ckpt::fb::BeginSnapshotT& message) const;

 private:
  Status check_tokens(const ckpt::SnapshotKey& key, const Units& units,
                      const ckpt::fb::BeginSnapshotT& message) const;
  std::vector<ckpt::UnitId> absent(const ckpt::SnapshotKey& key, const Units& units,
                                   const ckpt::fb::BeginSnapshotT& message) const;

  const SnapshotNeeds& needs_;
  const Ingest& ingest_;
};

}  // namespace ckptd
