// State changes of slabs.
#include "ckptd/staging/staging.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/staging/page_guard.h"
#include "ckptd/staging/staging_impl.h"
#include "formats/base/checked.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::LedgerTable;
using ckpt::make_error;

Staging::Staging(Disk& disk, Executor& executor, const Options& options)
    : impl_(std::make_unique<Impl>(disk, executor, options)) {}

Staging::~Staging() {
  CKPT_ASSERT_MSG(impl_->arenas.empty(), "staging was destroyed before close()");
}

ArenaState& Staging::Impl::at(ArenaId arena) {
  const auto found = arenas.find(arena);
  CKPT_ASSERT_MSG(found != arenas.end(), "no such arena");
  return *found->second;
}

SlabRecord& Staging::Impl::slab_at(ArenaId id, uint32_t slab) {
  ArenaState& arena = at(id);
  CKPT_ASSERT(slab < arena.slabs.size());
  return arena.slabs[slab];
}

void Staging::Impl::slabs_ready(ArenaId arena) {
  if (on_slabs_ready) on_slabs_ready(arena);
}

void Staging::Impl::change(ArenaId arena, uint32_t slab, SlabState from, SlabState to) {
  SlabRecord& record = slab_at(arena, slab);
  CKPT_ASSERT(record.state == from);
  record.state = to;
}

void Staging::Impl::release(ArenaId id, uint32_t slab) {
  SlabRecord& record = slab_at(id, slab);
  CKPT_ASSERT(record.state == SlabState::kSealed || record.state == SlabState::kWriting);
  record.state = SlabState::kFree;
  if (at(id).ended) {
    destroy_if_over(id);
  } else {
    slabs_ready(id);
  }
}

void Staging::Impl::to_cache(ArenaId id, uint32_t slab, const ckpt::SnapshotKey& snapshot,
                             std::vector<ckpt::ExtentFragment> fragments) {
  ArenaState& arena = at(id);
  SlabRecord& record = slab_at(id, slab);
  CKPT_ASSERT(record.state == SlabState::kWriting);
  record.state = SlabState::kDurable;
  record.order = next_order++;
  record.snapshot = snapshot;
  record.fragments = std::move(fragments);
  arena.durable.emplace(record.order, slab);
  cache.add(snapshot, id, slab, record.fragments);
  if (arena.ledger) {
    arena.ledger->put(LedgerTable::kDurable, slab, snapshot, record.order, record.fragments);
  }
  if (!arena.ended) slabs_ready(id);
}

void Staging::Impl::forget_cached(ArenaState& arena, uint32_t slab) {
  SlabRecord& record = arena.slabs[slab];
  CKPT_ASSERT(record.state == SlabState::kDurable && record.leases.none());
  if (arena.ledger) arena.ledger->clear(LedgerTable::kDurable, slab);
  cache.remove(record.snapshot, arena.id, slab, record.fragments);
  arena.durable.erase(record.order);
  record.fragments.clear();
  record.state = SlabState::kFree;
}

std::vector<uint32_t> Staging::lease(ArenaId id, uint32_t count) {
  ArenaState& arena = impl_->at(id);
  CKPT_ASSERT_MSG(!arena.ended, "leasing from the arena of a dead session");
  std::vector<uint32_t> leased;
  auto take = [&leased, &arena](uint32_t slab) {
    arena.slabs[slab].state = SlabState::kLeased;
    leased.push_back(slab);
  };
  const auto take_free = [&] {
    for (uint32_t slab = 0; slab < arena.slabs.size() && leased.size() < count; ++slab) {
      const SlabRecord& record = arena.slabs[slab];
      if (record.state == SlabState::kFree && !record.reserved && arena.warm(slab)) take(slab);
    }
  };
  take_free();
  for (auto oldest = arena.durable.begin();
       oldest != arena.durable.end() && leased.size() < count;) {
    const uint32_t slab = oldest->second;
    ++oldest;
    if (!arena.slabs[slab].leases.none()) continue;
    impl_->forget_cached(arena, slab);
    take(slab);
  }
  // Slabs that exist only in memory are evicted last. A snapshot never waits for them.
  while (leased.size() < count) {
    const auto slab = impl_->evict_oldest(arena);
    if (!slab) break;
    take(*slab);
    take_free();  // evicting a version may have freed its other slabs
  }
  return leased;
}

uint32_t Staging::leasable(ArenaId id) const {
  const ArenaState& arena = impl_->at(id);
  return static_cast<uint32_t>(
      std::count_if(arena.slabs.begin(), arena.slabs.end(),
                    [](const SlabRecord& slab) { return !slab.reserved; }));
}

// 0 once faulting in has failed: the arena then stays as small as it is.
uint32_t Staging::preparing(ArenaId id) const {
  const ArenaState& arena = impl_->at(id);
  const bool warms = arena.warming || std::ranges::find(impl_->cold, id) != impl_->cold.end();
  if (!warms) return 0;
  uint32_t count = 0;
  for (uint32_t slab = 0; slab < arena.slabs.size(); ++slab) {
    const SlabRecord& record = arena.slabs[slab];
    if (record.state == SlabState::kFree && !record.reserved && !arena.warm(slab)) ++count;
  }
  return count;
}

void Staging::unlease(ArenaId arena, uint32_t slab) {
  impl_->change(arena, slab, SlabState::kLeased, SlabState::kFree);
  impl_->slab_at(arena, slab).claimed = false;
  impl_->slabs_ready(arena);
}

Status Staging::claim_leased(ArenaId id, uint32_t slab) {
  ArenaState& arena = impl_->at(id);
  if (slab >= arena.slabs.size() || arena.slabs[slab].state != SlabState::kLeased) {
    return make_error(ErrorCode::kInvalidArgument, "arena {}: slab {} is not leased", id, slab);
  }
  if (arena.slabs[slab].claimed) {
    return make_error(ErrorCode::kInvalidArgument, "arena {}: slab {} is claimed twice", id, slab);
  }
  arena.slabs[slab].claimed = true;
  return {};
}

void Staging::free_unclaimed(ArenaId id) {
  for (SlabRecord& slab : impl_->at(id).slabs) {
    if (slab.state == SlabState::kLeased && !slab.claimed) slab.state = SlabState::kFree;
    slab.claimed = false;
  }
  impl_->slabs_ready(id);
}

namespace {

// Validates all of the client's claims about a slab before any other use.
Status check_claim(uint32_t slab, uint64_t slab_bytes, uint64_t payload_bytes,
                   const std::vector<ckpt::ExtentFragment>& fragments) {
  auto refuse = [slab](std::string reason) {
    return make_error(ErrorCode::kInvalidArgument, "slab {}: {}", slab, reason);
  };
  if (payload_bytes == 0 || payload_bytes > slab_bytes) {
    return refuse(fmt::format("payload of {} bytes in a slab of {}", payload_bytes, slab_bytes));
  }
  if (fragments.empty() || fragments.size() > limits::kFragmentsPerSlabMax) {
    return refuse(fmt::format("{} fragments; 1 to {} are possible", fragments.size(),
                              limits::kFragmentsPerSlabMax));
  }
  uint64_t end = 0;
  for (const ckpt::ExtentFragment& fragment : fragments) {
    const auto unit_end = ckpt::base::checked_add(fragment.offset, fragment.length);
    if (fragment.length == 0 || !unit_end.has_value() ||
        !ckpt::base::range_fits(fragment.payload_offset, fragment.length, payload_bytes)) {
      return refuse(
          fmt::format("fragment of unit {}: {} bytes at payload offset {} do not fit "
                      "the payload of {}",
                      fragment.unit, fragment.length, fragment.payload_offset, payload_bytes));
    }
    if (fragment.payload_offset < end) {
      return refuse(
          fmt::format("fragment of unit {} at payload offset {} overlaps the one before "
                      "it, which ends at {}",
                      fragment.unit, fragment.payload_offset, end));
    }
    if (fragment.length >= ckpt::kAlignedFragmentBytes &&
        !ckpt::base::is_aligned(fragment.payload_offset, kBlockBytes)) {
      return refuse(fmt::format("fragment of unit {} of {} bytes starts at {}, not at a block",
                                fragment.unit, fragment.length, fragment.payload_offset));
    }
    if (fragment.codec != 0) {
      return refuse(
          fmt::format("fragment of unit {}: no such codec: {}", fragment.unit, fragment.codec));
    }
    end = fragment.payload_offset + fragment.length;
  }
  return {};
}

}  // namespace

Result<StagedSlab> Staging::seal(ArenaId id, uint32_t slab, uint64_t payload_bytes,
                                 std::vector<ckpt::ExtentFragment> fragments) {
  ArenaState& arena = impl_->at(id);
  if (slab >= arena.slabs.size()) {
    return make_error(ErrorCode::kInvalidArgument, "slab {}: the arena has {}", slab,
                      arena.slabs.size());
  }
  SlabRecord& record = arena.slabs[slab];
  if (record.state != SlabState::kLeased) {
    return make_error(ErrorCode::kFailedPrecondition, "slab {}: it is not leased", slab);
  }
  CKPT_TRY(check_claim(slab, arena.view.layout().slab_bytes, payload_bytes, fragments));
  const uint64_t padded = ckpt::base::align_up(payload_bytes, kBlockBytes);
  StagedSlab staged;
  staged.arena_ = id;
  staged.slab_ = slab;
  staged.buffer_ = arena.buffer_of(slab);
  if (!staged.buffer_.has_value()) {
    // Without pinned pages, every mapping shows the bytes that will be written, and only later
    // exchanges matter. So the guard is populated again; an adopted arena may not even be warm.
    const Status armed = populate(arena.guard.slab(slab));
    if (!armed.ok()) return armed.error();
  }
  staged.payload_ = arena.io_bytes(slab, staged.buffer_).first(padded);
  staged.guard_ = arena.guard.slab(slab).first(padded);
  staged.view_ = arena.view.slab(slab).first(padded);
  staged.trust_ = arena.trust;
  staged.payload_bytes_ = payload_bytes;
  staged.fragments_ = std::move(fragments);
  // The daemon zeroes the padding, whatever the client left there.
  const MutableByteView view = arena.view.slab(slab).first(padded);
  std::fill(view.begin() + static_cast<ptrdiff_t>(payload_bytes), view.end(), std::byte{0});
  record.state = SlabState::kSealed;
  record.claimed = false;
  staged.staging_ = this;  // last: from here on `staged` owns the slab
  return staged;
}

std::optional<uint32_t> Staging::take_restore_slab(ArenaId id) {
  ArenaState& arena = impl_->at(id);
  for (uint32_t slab = 0; slab < arena.slabs.size(); ++slab) {
    SlabRecord& record = arena.slabs[slab];
    if (!record.reserved || record.state != SlabState::kFree || !arena.warm(slab)) continue;
    record.state = SlabState::kRestoring;
    return slab;
  }
  return std::nullopt;
}

void Staging::release_restore_slab(ArenaId id, uint32_t slab) {
  impl_->change(id, slab, SlabState::kRestoring, SlabState::kFree);
  if (impl_->at(id).ended) {
    impl_->destroy_if_over(id);
  } else {
    impl_->slabs_ready(id);
  }
}

ckpt::ArenaLayout Staging::layout(ArenaId id) const { return impl_->at(id).view.layout(); }

MutableByteView Staging::slab_bytes(ArenaId id, uint32_t slab) {
  const ArenaState& arena = impl_->at(id);
  CKPT_ASSERT(slab < arena.slabs.size() && arena.slabs[slab].reserved);
  return arena.io_bytes(slab, arena.buffer_of(slab));
}

std::optional<BufferId> Staging::slab_buffer(ArenaId id, uint32_t slab) const {
  const ArenaState& arena = impl_->at(id);
  CKPT_ASSERT(slab < arena.slabs.size() && arena.slabs[slab].reserved);
  return arena.buffer_of(slab);
}

std::optional<MemoryLease> Staging::find_cached(uid_t uid, const ckpt::SnapshotKey& snapshot,
                                                ckpt::UnitId unit, uint64_t offset,
                                                uint64_t length) {
  for (const SlabCache::Entry& entry : impl_->cache.find(snapshot, unit, offset, length)) {
    ArenaState& arena = impl_->at(entry.arena);
    if (arena.uid != uid || arena.trust->tampered.load()) continue;
    SlabRecord& record = arena.slabs[entry.slab];
    record.leases.begun();
    Impl* impl = impl_.get();
    auto drop = [impl, id = entry.arena, slab = entry.slab](void*) {
      SlabRecord& read = impl->slab_at(id, slab);
      read.leases.ended();
      const bool unwanted = read.state == SlabState::kHeld && !impl->level.wants({id, slab});
      if (unwanted && read.leases.none()) impl->forget_held(impl->at(id), slab);
      if (impl->at(id).ended) {
        impl->destroy_if_over(id);
      } else {
        impl->slabs_ready(id);
      }
    };
    const uint64_t at = entry.fragment.payload_offset + (offset - entry.fragment.offset);
    return MemoryLease{.bytes = ByteView(arena.view.slab(entry.slab)).subspan(at, length),
                       .hold = std::shared_ptr<void>(&record, drop)};
  }
  return std::nullopt;
}

void Staging::drop_cached(ckpt::RunId run) {
  keep_memory(run, [](const ckpt::SnapshotKey&) { return false; });
  std::vector<ArenaId> ids;
  for (const auto& [id, arena] : impl_->arenas) ids.push_back(id);
  for (const ArenaId id : ids) {
    ArenaState& arena = impl_->at(id);
    for (uint32_t slab = 0; slab < arena.slabs.size(); ++slab) {
      const SlabRecord& record = arena.slabs[slab];
      const bool cached = record.state == SlabState::kDurable && record.leases.none();
      if (cached && record.snapshot.run == run) impl_->forget_cached(arena, slab);
    }
    impl_->destroy_if_over(id);
  }
}

void Staging::set_on_slabs_ready(std::function<void(ArenaId)> callback) {
  impl_->on_slabs_ready = std::move(callback);
}

Staging::Stats Staging::stats() const {
  Stats stats{.arena_bytes = impl_->arena_bytes(),
              .arenas = impl_->arenas.size(),
              .warm_pool_bytes = impl_->pool.warm_bytes(),
              .memory_versions = impl_->level.versions(),
              .evicted_versions = impl_->evicted_versions,
              .ledger_errors = impl_->ledger_errors,
              .zero_copy = impl_->zero_copy};
  for (const auto& [id, arena] : impl_->arenas) {
    for (const SlabRecord& slab : arena->slabs) ++stats.slabs[slab.state];
    if (arena->trust->tampered.load()) stats.zero_copy = false;
    if (arena->ledger) stats.ledger_errors += arena->ledger->write_errors();
  }
  return stats;
}

void Staging::close() {
  impl_->on_slabs_ready = nullptr;
  impl_->closing = true;
  for (auto& [id, arena] : impl_->arenas) {
    arena->ledger.reset();  // its content is for the next daemon
    arena->ended = true;
    for (SlabRecord& slab : arena->slabs) {
      if (slab.state == SlabState::kLeased) slab.state = SlabState::kFree;
    }
  }
  while (impl_->warming || impl_->pool_frees > 0) {
    impl_->executor.wait();
    impl_->executor.reap();
  }
  (void)impl_->pool.shrink(0);
  while (!impl_->arenas.empty()) {
    const auto& [id, arena] = *impl_->arenas.begin();
    CKPT_ASSERT_MSG(arena->idle(), "staging was closed while a slab was held");
    impl_->destroy(id);
  }
}

}  // namespace ckptd
