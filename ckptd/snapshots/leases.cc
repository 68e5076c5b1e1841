#include "ckptd/snapshots/leases.h"

#include <utility>

#include "ckptd/limits.h"
#include "ckptd/staging/arena_quota.h"

namespace ckptd {

namespace fb = ckpt::fb;

Status Leases::add(const Session& session, const LeaseWait& wait) {
  const OpenSnapshotState::Share& share = open_.at(wait.snapshot).shares.at(session.id);
  std::deque<LeaseWait>& waits = waits_[session.id];
  uint64_t wanted = wait.count + (share.streams ? 0 : uint64_t{share.held});
  for (const LeaseWait& other : waits) {
    if (other.snapshot == wait.snapshot) wanted += other.count;
  }
  const uint32_t leasable = session.arena ? needs_.staging.leasable(*session.arena) : 0;
  if (wait.count == 0 || wanted > leasable ||
      waits.size() >= limits::kPendingRequestsPerSessionMax) {
    return snapshot_too_large(
        "the snapshot", wanted, leasable,
        session.arena ? needs_.staging.layout(*session.arena) : ckpt::ArenaLayout());
  }
  ++counters_.lease_waits;
  waits.push_back(wait);
  return {};
}

void Leases::serve(const Session& session) {
  std::deque<LeaseWait>& waits = waits_[session.id];
  while (!waits.empty() && !session.handing_back) {
    LeaseWait& wait = waits.front();
    std::vector<uint32_t> slabs = needs_.staging.lease(*session.arena, wait.count);
    if (slabs.empty()) return;
    wait.count -= static_cast<uint32_t>(slabs.size());
    const LeaseWait served = wait;
    if (wait.count == 0) {
      counters_.lease_wait_time += needs_.turn.now() - wait.since;
      waits.pop_front();
    }
    give(session.id, served.snapshot, served.request, std::move(slabs));
  }
}

void Leases::give(ckpt::SessionId session, const ckpt::SnapshotKey& snapshot, uint64_t request,
                  std::vector<uint32_t> slabs) {
  OpenSnapshotState::Share& share = open_.at(snapshot).shares.at(session);
  share.leased.insert(slabs.begin(), slabs.end());
  share.held += static_cast<uint32_t>(slabs.size());
  fb::SlabsLeasedT reply;
  reply.request = request;
  reply.step = snapshot.step;
  reply.attempt = snapshot.attempt;
  reply.slabs = std::move(slabs);
  needs_.replies.send(session, std::move(reply));
}

size_t Leases::waiting() const {
  size_t count = 0;
  for (const auto& [session, waits] : waits_) count += waits.size();
  return count;
}

uint64_t Leases::slabs_awaited(ckpt::SessionId session) const {
  const auto found = waits_.find(session);
  if (found == waits_.end()) return 0;
  uint64_t slabs = 0;
  for (const LeaseWait& wait : found->second) slabs += wait.count;
  return slabs;
}

void Leases::forget(ckpt::SessionId session, const ckpt::SnapshotKey& snapshot) {
  const auto found = waits_.find(session);
  if (found == waits_.end()) return;
  std::erase_if(found->second, [&](const LeaseWait& wait) { return wait.snapshot == snapshot; });
}

void Leases::end_handback(Session& session) {
  if (!std::exchange(session.handing_back, false)) return;
  needs_.staging.free_unclaimed(*session.arena);
}

}  // namespace ckptd
