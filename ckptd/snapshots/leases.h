// Leases: slabs on their way to members of open snapshots. A request that cannot be met at once
// waits; the requests of a session are served in their order.
//
// Loop thread only. The owner calls serve() when slabs of a session's arena become leasable.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "ckptd/snapshots/open_state.h"

namespace ckptd {

// Slabs that a member requested and has not received yet.
struct LeaseWait {
  ckpt::SnapshotKey snapshot;
  uint64_t request = 0;
  uint32_t count = 0;
  Time since{};
};

class Leases {
 public:
  Leases(const SnapshotNeeds& needs, OpenSnapshots& open, SnapshotCounters& counters)
      : needs_(needs), open_(open), counters_(counters) {}

  // A snapshot keeps its slabs until it is durable, unless it streams: fails for a request that
  // could never be met.
  Status add(const Session& session, const LeaseWait& wait);
  // In the order of requests: a small later request does not overtake a large one.
  void serve(const Session& session);
  // The slabs belong to the member's share of the snapshot now; notifies the member.
  void give(ckpt::SessionId session, const ckpt::SnapshotKey& snapshot, uint64_t request,
            std::vector<uint32_t> slabs);
  bool waits(ckpt::SessionId session) const { return slabs_awaited(session) > 0; }
  size_t waiting() const;  // requests
  uint64_t slabs_awaited(ckpt::SessionId session) const;
  void forget(ckpt::SessionId session) { waits_.erase(session); }
  void forget(ckpt::SessionId session, const ckpt::SnapshotKey& snapshot);

  // A client reports everything about its old snapshots before it requests anything new: slabs of
  // an adopted arena that it has not claimed by then are free.
  void end_handback(Session& session);

 private:
  const SnapshotNeeds& needs_;
  OpenSnapshots& open_;
  SnapshotCounters& counters_;
  std::map<ckpt::SessionId, std::deque<LeaseWait>> waits_;
};

}  // namespace ckptd
