// Slabs that exist only in memory: held until a newer version replaces them, or evicted.
#include <algorithm>

#include "ckptd/staging/staging.h"
#include "ckptd/staging/staging_impl.h"

namespace ckptd {

// Collects all pieces before the memory level hears of any: a version in several slabs becomes
// visible as a whole or not at all.
void Staging::hold(const ckpt::SnapshotKey& snapshot, std::vector<StagedSlab> slabs) {
  std::vector<MemoryLevel::Piece> pieces;
  for (StagedSlab& staged : slabs) {
    const MemoryLevel::Slab at{staged.arena_, staged.slab_};
    CKPT_ASSERT(staged.staging_ == this);
    ArenaState& arena = impl_->at(at.arena);
    SlabRecord& record = impl_->slab_at(at.arena, at.slab);
    CKPT_ASSERT(record.state == SlabState::kSealed);
    record.state = SlabState::kHeld;
    record.order = impl_->next_order++;
    record.snapshot = snapshot;
    record.fragments = std::move(staged.fragments_);
    arena.held.emplace(record.order, at.slab);
    impl_->cache.add(snapshot, at.arena, at.slab, record.fragments);
    if (arena.ledger) {
      arena.ledger->put(ckpt::LedgerTable::kHeld, at.slab, snapshot, record.order,
                        record.fragments);
    }
    for (const auto& fragment : record.fragments) pieces.push_back({at, fragment});
    staged.staging_ = nullptr;  // the level owns it now
  }
  impl_->free_held(impl_->level.add(snapshot, pieces));
}

void Staging::supersede(const ckpt::SnapshotKey& snapshot, const std::vector<ckpt::UnitId>& units) {
  impl_->free_held(impl_->level.supersede(snapshot, units));
}

void Staging::keep_memory(ckpt::RunId run,
                          const std::function<bool(const ckpt::SnapshotKey&)>& wanted) {
  impl_->free_held(impl_->level.keep(run, wanted));
}

void Staging::pin_memory(ckpt::RunId run) { impl_->pinned_runs.insert(run); }

void Staging::unpin_memory(ckpt::RunId run) {
  if (impl_->pinned_runs.erase(run) == 0) return;
  std::vector<ArenaId> ids;
  for (const auto& [id, arena] : impl_->arenas) {
    if (!arena->ended && !arena->held.empty()) ids.push_back(id);
  }
  for (const ArenaId id : ids) impl_->slabs_ready(id);
}

bool Staging::memory_pinned(ckpt::RunId run) const { return impl_->pinned_runs.contains(run); }

std::optional<MemoryVersion> Staging::memory_version(uid_t uid, ckpt::RunId run,
                                                     ckpt::UnitId unit) const {
  const MemoryLevel::Version* known = impl_->level.find(run, unit);
  if (known == nullptr) return std::nullopt;
  MemoryVersion version{.snapshot = known->snapshot, .fragments = {}};
  for (const MemoryLevel::Piece& piece : known->pieces) {
    const ArenaState& arena = impl_->at(piece.at.arena);
    if (arena.uid != uid || arena.trust->tampered.load()) return std::nullopt;
    version.fragments.push_back(piece.fragment);
  }
  return version;
}

// Frees slabs that the level no longer needs. A slab that a restore reads is freed after the read.
void Staging::Impl::free_held(const std::vector<MemoryLevel::Slab>& slabs) {
  for (const MemoryLevel::Slab& slab : slabs) {
    if (!slab_at(slab.arena, slab.slab).leases.none()) continue;
    forget_held(at(slab.arena), slab.slab);
    if (!at(slab.arena).ended) slabs_ready(slab.arena);
  }
  // Last, and each arena once: an arena that is destroyed may have had several of the slabs.
  for (const MemoryLevel::Slab& slab : slabs) {
    if (arenas.contains(slab.arena)) destroy_if_over(slab.arena);
  }
}

void Staging::Impl::forget_held(ArenaState& arena, uint32_t slab) {
  SlabRecord& record = arena.slabs[slab];
  CKPT_ASSERT(record.state == SlabState::kHeld && record.leases.none());
  if (arena.ledger) arena.ledger->clear(ckpt::LedgerTable::kHeld, slab);
  cache.remove(record.snapshot, arena.id, slab, record.fragments);
  arena.held.erase(record.order);
  record.fragments.clear();
  record.state = SlabState::kFree;
}

bool Staging::Impl::evictable(const SlabRecord& slab) const {
  return slab.leases.none() && !pinned_runs.contains(slab.snapshot.run);
}

// Evicts and returns the oldest slab that no restore reads or waits for; nullopt: there is none.
std::optional<uint32_t> Staging::Impl::evict_oldest(ArenaState& arena) {
  const auto oldest = std::find_if(arena.held.begin(), arena.held.end(), [&](const auto& held) {
    return evictable(arena.slabs[held.second]);
  });
  if (oldest == arena.held.end()) return std::nullopt;
  const uint32_t slab = oldest->second;  // copied: evict() erases the entry
  evict(arena, slab);
  return slab;
}

void Staging::Impl::evict(ArenaState& arena, uint32_t slab) {
  const size_t before = level.versions();
  const auto others = level.evict({arena.id, slab});
  evicted_versions += before - level.versions();
  forget_held(arena, slab);
  free_held(others);
}

}  // namespace ckptd
