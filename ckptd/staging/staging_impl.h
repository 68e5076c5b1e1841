// Private to this folder: the state of Staging.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "ckptd/staging/arena_quota.h"
#include "ckptd/staging/arena_state.h"
#include "ckptd/staging/memory_level.h"
#include "ckptd/staging/slab_cache.h"
#include "ckptd/staging/staging.h"
#include "ckptd/staging/warm_pool.h"

namespace ckptd {

struct Staging::Impl {
  Impl(Disk& with_disk, Executor& with_executor, const Options& with)
      : disk(with_disk),
        executor(with_executor),
        options(with),
        pool(with.warm_pool_bytes, with.session_bytes_default) {}

  ArenaState& at(ArenaId arena);
  SlabRecord& slab_at(ArenaId arena, uint32_t slab);

  // Slab states (staging.cc).
  void change(ArenaId arena, uint32_t slab, SlabState from, SlabState to);
  void release(ArenaId arena, uint32_t slab);  // a StagedSlab was dropped
  void to_cache(ArenaId arena, uint32_t slab, const ckpt::SnapshotKey& snapshot,
                std::vector<ckpt::ExtentFragment> fragments);
  void forget_cached(ArenaState& arena, uint32_t slab);  // durable -> free
  void slabs_ready(ArenaId arena);

  // Held slabs (held_slabs.cc).
  void free_held(const std::vector<MemoryLevel::Slab>& slabs);
  void forget_held(ArenaState& arena, uint32_t slab);  // held -> free
  bool evictable(const SlabRecord& slab) const;
  std::optional<uint32_t> evict_oldest(ArenaState& arena);
  void evict(ArenaState& arena, uint32_t slab);

  // Lifecycle of arenas (arenas.cc).
  uint64_t arena_bytes(std::optional<uid_t> of = {}) const;  // of all, or of one user
  uint64_t user_bytes_max(uid_t uid) const;
  // Frees arenas of dead sessions, oldest first, until this much is available; returns how much is.
  uint64_t reclaim_quota(uid_t uid, uint64_t bytes);
  void destroy_ended(const std::function<bool()>& enough, std::optional<uid_t> of);
  ArenaUse use(uid_t uid) const;
  Granted add(uid_t uid, ckpt::base::UniqueFd fd, ckpt::ArenaMapping guard, ckpt::ArenaMapping view,
              SlabState initial);
  // nullopt: the pool has no suitable memory.
  std::optional<Granted> create_warm(uid_t uid, uint64_t bytes, uint64_t slab_bytes);
  ArenaState& insert(ArenaId id, uid_t uid, ckpt::base::UniqueFd fd, ckpt::ArenaMapping guard,
                     ckpt::ArenaMapping view, SlabState initial);
  Status check_room(uid_t uid, uint64_t arena_bytes);

  // Faulting in memory (warming.cc).
  uint64_t available_memory() const;
  std::optional<WarmPool::Memory> take_warm(const ckpt::ArenaLayout& layout);
  void shrink_pool(uint64_t bytes_left);
  uint64_t pool_bytes_max() const;
  void warm_next();
  void warm_chunk(ArenaState& arena);
  void chunk_warmed(ArenaId arena, uint32_t chunk, const Status& status);
  Result<BufferId> try_register(ArenaState& arena, MutableByteView chunk);
  void register_chunk(ArenaState& arena, uint32_t chunk);
  void destroy_if_over(ArenaId arena);
  void destroy(ArenaId arena);

  // Restarts (kept_memory.cc).
  struct KeptPair;
  struct KeptSlab;
  std::map<ArenaId, KeptPair> take_pairs();
  void keep(ArenaState& arena);
  void forget(ArenaId arena);
  Result<std::vector<KeptSlab>> take_arena(
      Staging& staging, ArenaId id, KeptPair pair,
      const std::function<bool(const ckpt::SnapshotKey&)>& wanted, uint64_t& refused);
  void check_kept(std::vector<KeptSlab>& slabs);
  void settle_kept(std::vector<KeptSlab> slabs);
  ArenaState* find_parked(int fd);
  Result<Granted> unpark(ArenaState& arena, uid_t uid, const ckpt::ArenaLayout& layout);

  Disk& disk;
  Executor& executor;
  const Options options;
  std::map<ArenaId, std::unique_ptr<ArenaState>> arenas;
  SlabCache cache;  // of durable and held slabs
  MemoryLevel level;
  std::set<ckpt::RunId> pinned_runs;
  uint64_t evicted_versions = 0;
  uint64_t ledger_errors = 0;  // of destroyed arenas
  ArenaId next_arena = 1;
  std::deque<ArenaId> cold;  // arenas with chunks to be faulted in, the next one first
  WarmPool pool;
  size_t pool_frees = 0;  // frees running on the executor
  bool closing = false;
  bool warming = false;     // the executor is faulting in an arena or the pool
  uint64_t next_order = 1;  // of durable and held slabs
  std::function<void(ArenaId)> on_slabs_ready;
  bool zero_copy = true;
  bool plain_io_logged = false;
};

}  // namespace ckptd
