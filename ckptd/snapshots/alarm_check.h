// AlarmCheck: suspicious values in a snapshot. The executor scans the bytes during the check after
// every write. History is looked up here, once per line of history, and then kept in memory. Loop
// thread only, except the observers that it makes.
#pragma once

#include <memory>

#include "ckptd/snapshots/newest_cache.h"
#include "ckptd/snapshots/open_state.h"
#include "ckptd/snapshots/registrations.h"

namespace ckptd {

class AlarmCheck {
 public:
  AlarmCheck(const SnapshotNeeds& needs, RunNewestCache& newest, const Registrations& registrations,
             SnapshotCounters& counters)
      : needs_(needs), newest_(newest), registrations_(registrations), counters_(counters) {}

  // A member begins: keeps the strictest of the members' policies, and the smallest of their
  // bounds.
  static void note(const Session& session, const ckpt::fb::BeginSnapshotT& message,
                   OpenSnapshotState& open);
  // Scans the floats of a slab while its bytes are checked. Empty: nothing is scanned.
  static PayloadObserver observe_floats(const OpenSnapshotState& open,
                                        const std::shared_ptr<NotFiniteScan>& scan);
  // Judges the snapshot before its commit. Keeps facts and text in its state.
  ckpt::AlarmList raise(const Ingest::CommitAction& action, OpenSnapshots& snapshots);

 private:
  const SnapshotNeeds& needs_;
  RunNewestCache& newest_;
  const Registrations& registrations_;
  SnapshotCounters& counters_;
};

}  // namespace ckptd
