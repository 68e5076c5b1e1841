// Snapshots: from a member's begin to the commit, or the failure. Executes the decisions of Ingest.
//
//   begin  -> checks, disk space, slabs leased (begins.h, leases.h)
//   seal   -> slab taken over, compared with earlier versions, written (seals.h, dedup.h, deltas.h)
//   commit -> alarms judged, record written, members notified
//
// Owns the state of every open snapshot. Loop thread only; callbacks of Persist and Comparer run in
// the loop, too. After a failure nothing is left but dead space in segments; ingest remembers the
// reason for late members. The end: close(), reap the disk until idle(), then Persist::close();
// only then may it be destroyed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckptd/ingest/ingest.h"
#include "ckptd/observe/run_progress.h"
#include "ckptd/retention/prune.h"
#include "ckptd/snapshots/alarm_check.h"
#include "ckptd/snapshots/begin_checks.h"
#include "ckptd/snapshots/begins.h"
#include "ckptd/snapshots/dedup.h"
#include "ckptd/snapshots/deltas.h"
#include "ckptd/snapshots/leases.h"
#include "ckptd/snapshots/needs.h"
#include "ckptd/snapshots/newest_cache.h"
#include "ckptd/snapshots/open_state.h"
#include "ckptd/snapshots/registrations.h"
#include "ckptd/snapshots/seals.h"

namespace ckptd {

class Snapshots {
 public:
  using Needs = SnapshotNeeds;
  using Counters = SnapshotCounters;

  explicit Snapshots(Needs needs);
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // -- messages ----------------------------------------------------------------------------------
  void begin(Session& session, const ckpt::fb::BeginSnapshotT& message) {
    begins_.begin(session, message);
  }
  void lease(Session& session, const ckpt::fb::LeaseSlabsT& message) {
    begins_.lease(session, message);
  }
  void seal(Session& session, const ckpt::fb::SealSlabT& message) { seals_.seal(session, message); }
  void abort(Session& session, const ckpt::fb::AbortSnapshotT& message) {
    begins_.abort(session, message);
  }
  void reopen(Session& session, const ckpt::fb::ReopenSnapshotT& message) {
    begins_.reopen(session, message);
  }
  // The client of an adopted arena requests something new, or its time is over.
  void end_handback(Session& session) { leases_.end_handback(session); }
  // Notes codecs and flags of a trainer's units. Precondition: they were checked (registrations.h).
  void registered(const std::string& run, const ckpt::fb::RegisterUnitsT& message) {
    registrations_.note(run, message);
  }
  void forget_registration(const std::string& run) { registrations_.forget(run); }

  // -- events ------------------------------------------------------------------------------------
  // Fails snapshots past their deadline.
  void fail_overdue() { execute(ingest_.tick(needs_.turn.now())); }
  // Time passes for reads of earlier versions.
  void tick(Time now);
  // Others may begin now: a snapshot has ended.
  void retry_begins() { begins_.retry(); }
  // Slabs of the session's arena became leasable.
  void serve_leases(const Session& session) { leases_.serve(session); }
  // Begins that wait are refused. Open snapshots continue; the caller waits for them.
  void begin_drain() { begins_.refuse_waiting(); }
  void disconnected(ckpt::SessionId session);
  // A member of the epoch seals nothing more: it died, left, or asked for the next epoch.
  void member_gone(ckpt::RunId run, ckpt::Epoch epoch, ckpt::Rank rank, const std::string& how) {
    execute(ingest_.member_gone(run, epoch, rank, how));
  }
  // Aborts the run's snapshots that are not staged: staged ones commit, or fail by themselves.
  void abort_unstaged(ckpt::RunId run, const ckpt::Error& error);
  void epoch_ended(ckpt::RunId run, ckpt::Epoch epoch) { newest_.epoch_ended(run, epoch); }
  void epoch_opened(ckpt::RunId run) { newest_.epoch_opened(run); }
  // The run loses versions: its cached newest versions may be wrong.
  void versions_lost(ckpt::RunId run) { newest_.forget(run); }
  // Ends all comparisons. Writes end with Persist::close().
  void close() { dedup_.close(); }

  // -- questions ---------------------------------------------------------------------------------
  std::vector<ckpt::SnapshotKey> open(ckpt::RunId run) const { return ingest_.open(run); }
  size_t open_count() const { return open_.size(); }
  // True if all members of a snapshot have sealed everything, and it is not settled.
  bool any_staged() const;
  // True if an uncommitted snapshot has bytes there, or the next one will write there.
  bool being_written(ckpt::SegmentId segment) const;
  // Versions that open snapshots reference: no prune may remove them.
  std::vector<HeldVersion> versions_held(ckpt::RunId run) const;
  // Staged snapshots by the name of their run.
  std::map<std::string, RunProgress::Waiting> waiting() const;
  // True if trainers wait for slabs, or for a snapshot of their run to be durable.
  bool trainers_wait() const { return begins_waiting() > 0 || leases_waiting() > 0; }
  size_t begins_waiting() const { return begins_.waiting(); }
  size_t leases_waiting() const { return leases_.waiting(); }
  // True if no slab is being compared.
  bool idle() const { return dedup_.idle(); }
  const Counters& counters() const { return counters_; }
  uint64_t dedup_read_bytes() const { return dedup_.read_bytes(); }  // since startup
  uint64_t base_read_bytes() const { return deltas_.read_bytes(); }  // since startup

 private:
  void execute(const Ingest::Actions& actions);
  void commit(const Ingest::CommitAction& action);
  void refuse_commit(const ckpt::SnapshotKey& key, const ckpt::AlarmList& alarms);
  void committed(const ckpt::SnapshotKey& key, const ckpt::fb::RecordT& record,
                 const Result<uint64_t>& result);
  void fail(const Ingest::FailAction& action);
  void announce(const ckpt::SnapshotKey& key, ckpt::fb::SnapshotLevel level, uint64_t bytes,
                const ckpt::Error* error, const std::string& alarms = {});
  void forget(const ckpt::SnapshotKey& key);

  const SnapshotNeeds needs_;
  SnapshotCounters counters_;
  Registrations registrations_;
  RunNewestCache newest_;
  Ingest ingest_;
  OpenSnapshots open_;
  const SnapshotCore core_;
  const BeginChecks checks_;
  Leases leases_;
  Dedup dedup_;
  Deltas deltas_;
  AlarmCheck alarms_;
  Seals seals_;
  Begins begins_;
};

}  // namespace ckptd
