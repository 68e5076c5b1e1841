// Begins: members begin a snapshot, request slabs for it, abort it, or open it again after a
// restart of ckptd. Reserves disk space and leases slabs; begins without room wait here.
//
// Sends the answers to members; Snapshots executes the decisions of Ingest. A refused begin leaves
// no state, except a failed snapshot if no attempt can succeed. Loop thread only.
#pragma once

#include "ckptd/snapshots/begin_checks.h"
#include "ckptd/snapshots/leases.h"
#include "ckptd/snapshots/open_state.h"
#include "ckptd/snapshots/registrations.h"
#include "ckptd/snapshots/waiting_begins.h"

namespace ckptd {

class Begins {
 public:
  Begins(const SnapshotCore& core, const BeginChecks& checks, Registrations& registrations,
         Leases& leases)
      : core_(core), checks_(checks), registrations_(registrations), leases_(leases) {}

  // -- messages ----------------------------------------------------------------------------------
  void begin(Session& session, const ckpt::fb::BeginSnapshotT& message);
  void lease(Session& session, const ckpt::fb::LeaseSlabsT& message);
  void abort(Session& session, const ckpt::fb::AbortSnapshotT& message);
  // Begins the snapshot anew from its member's data; its seals follow. Fails for an earlier epoch
  // than the member's: some of its members may be gone, and all must take part.
  void reopen(Session& session, const ckpt::fb::ReopenSnapshotT& message);

  // -- waiting begins ----------------------------------------------------------------------------
  // A snapshot has ended: retries the begins in the order of their arrival.
  void retry();
  // The daemon is shutting down: clients ask the next one.
  void refuse_waiting();
  void disconnected(ckpt::SessionId session) { waiting_.drop_session(session); }
  size_t waiting() const { return waiting_.count(); }

 private:
  void refuse_snapshot(const ckpt::SnapshotKey& key, const std::string& run_name,
                       const ckpt::Error& error);
  OpenSnapshotState& note_open(const Session& session, const ckpt::SnapshotKey& key,
                               const BeginChecks::Units& units,
                               const ckpt::fb::BeginSnapshotT& message);
  void unpin_memory_if_begun(const ckpt::SnapshotKey& key);
  Status reserve_disk(const Session& session, const ckpt::SnapshotKey& key,
                      const ckpt::fb::BeginSnapshotT& message);
  Status reserve_and_lease(Session& session, const ckpt::SnapshotKey& key,
                           const ckpt::fb::BeginSnapshotT& message);
  Status skip(const Session& session, const ckpt::SnapshotKey& key,
              const ckpt::fb::BeginSnapshotT& message, const std::vector<uint32_t>& slabs);
  Result<bool> answer_if_committed(const Session& session, const ckpt::fb::BeginSnapshotT& begin);
  Status claim(const Session& session, const std::vector<uint32_t>& slabs,
               OpenSnapshotState::Share& share);

  const SnapshotCore& core_;
  const BeginChecks& checks_;
  Registrations& registrations_;
  Leases& leases_;
  WaitingBegins waiting_;
};

}  // namespace ckptd
