// Staging: the arenas of all sessions and the state of every slab in them.
//
//   free -> leased -> sealed -> writing -> durable (kept as cache) -> free
//                      `-> held (memory level only) -> free
//   restoring: reserved for windows of a restore
//
// A slab's bytes belong to the client while it is leased, and to the daemon (through a StagedSlab)
// from seal to durable. The client can still write into a sealed slab, or punch holes into it. Two
// checks detect that: page_guard (were pages exchanged under the daemon's mapping?) and
// check_payload (do the bytes still match the CRCs that came with the seal?).
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/staging/memory_keeper.h"
#include "formats/arena.h"
#include "formats/base/hash.h"
#include "formats/segment.h"

namespace ckptd {

using ArenaId = uint64_t;

enum class SlabState : uint8_t { kFree, kLeased, kSealed, kWriting, kDurable, kRestoring, kHeld };

class Staging;
struct ArenaTrust;  // staging/arena_state.h

// Called with the bytes of each fragment while check_payload() has them in the cache: next are
// [from, to) of the fragment's bytes, in ascending pieces.
using PayloadObserver = std::function<void(const ckpt::ExtentFragment& fragment, ByteView bytes,
                                           uint64_t from, uint64_t to)>;

// A sealed slab. The holder of this value owns the slab's bytes. Dropping it frees the slab.
class StagedSlab {
 public:
  StagedSlab() = default;
  StagedSlab(StagedSlab&&) noexcept;
  StagedSlab& operator=(StagedSlab&&) noexcept;
  ~StagedSlab();

  ArenaId arena() const { return arena_; }
  uint32_t slab() const { return slab_; }
  // Padded to whole blocks. Only the disk reads payload(): a read by the processor would hide
  // exchanged pages (page_guard.h). Processor reads use bytes().
  MutableByteView payload() const { return payload_; }
  ByteView bytes() const { return view_; }
  uint64_t payload_bytes() const { return payload_bytes_; }
  std::optional<BufferId> buffer() const { return buffer_; }
  const std::vector<ckpt::ExtentFragment>& fragments() const { return fragments_; }
  explicit operator bool() const { return staging_ != nullptr; }

  // From sealed to writing, and from writing to durable: the slab then joins the memory level's
  // cache, and this value becomes empty.
  void mark_writing();
  void mark_durable(const ckpt::SnapshotKey& snapshot);
  // From sealed to held: all slabs of a memory-only snapshot, at once: see Staging::hold().
  static void mark_held(std::vector<StagedSlab> slabs, const ckpt::SnapshotKey& snapshot);

 private:
  friend class Staging;
  friend Status check_payload(const StagedSlab& slab, const PayloadObserver& observer);
  Staging* staging_ = nullptr;
  ArenaId arena_ = 0;
  uint32_t slab_ = 0;
  MutableByteView payload_;
  ByteView guard_;  // same bytes, other mapping: see page_guard.h
  ByteView view_;
  std::shared_ptr<ArenaTrust> trust_;
  uint64_t payload_bytes_ = 0;
  std::optional<BufferId> buffer_;
  std::vector<ckpt::ExtentFragment> fragments_;
};

// Checks that the bytes still match. Reads the whole payload once (CRC of every fragment, zero gaps
// and padding), and checks the page tables. kCorrupt names the difference. If pages were exchanged,
// the arena is never trusted again: no zero-copy writes from it, nothing served from its memory.
// Runs on an executor thread, as does the observer; thread-safe for one slab.
Status check_payload(const StagedSlab& slab, const PayloadObserver& observer = {});

// A unit version that is only in memory.
struct MemoryVersion {
  ckpt::SnapshotKey snapshot;
  std::vector<ckpt::ExtentFragment> fragments;  // ascending by offset
};

// Bytes of a unit version in memory. Holding a lease keeps the slab from being reused.
struct MemoryLease {
  ByteView bytes;
  std::shared_ptr<void> hold;
};

class Staging {
 public:
  struct Options {
    uint64_t arena_bytes_total = 2ull << 30;  // all arenas, including those of dead sessions
    uint64_t session_bytes_default = 512ull << 20;
    uint64_t session_bytes_max = UINT64_MAX;  // of one arena; larger requests are refused
    // Limit of all arenas of a user, including those of dead sessions; empty: only the total.
    std::function<uint64_t(uid_t uid)> user_bytes_max;
    uint64_t warm_pool_bytes = 0;  // pre-faulted memory for later arenas: see warm()
    uint32_t restore_slabs = 2;    // of each arena, never leased to snapshots
    // Bytes available without swapping; empty: ask the kernel.
    std::function<uint64_t()> available_memory;
    MemoryKeeper* keeper = nullptr;  // keeps arenas over a restart; null: they end with the daemon
    ckpt::base::Hash128 store;       // only ledgers of this store are accepted
  };
  Staging(Disk& disk, Executor& executor, const Options& options);
  ~Staging();  // asserts that no StagedSlab, lease or pre-fault is outstanding: close() first

  // A new arena for a session of `uid`. Slabs become leasable as the executor faults them
  // in, and on_slabs_ready is called. kResourceExhausted if the total or the user's quota is
  // used up even after the caches of dead sessions were freed; the message states the
  // numbers.
  struct Granted {
    ArenaId arena = 0;
    int fd = -1;  // to pass to the client; the arena owns it
    ckpt::ArenaLayout layout;
    uint64_t warm_bytes = 0;  // from the first byte on
  };
  Result<Granted> create(uid_t uid, uint64_t bytes_wanted, uint64_t slab_bytes);
  // Adopts an arena that a client kept over a daemon restart. Its slabs start as leased, except
  // restore slabs: no snapshot ever had one of them.
  Result<Granted> adopt(uid_t uid, ckpt::base::UniqueFd fd, uint64_t arena_bytes,
                        uint64_t slab_bytes);
  // Restores arenas that the last daemon left with the keeper (kept_memory.cc). A slab whose
  // snapshot is `wanted` and whose bytes all match becomes held or durable again. Blocks until
  // every byte is checked. Drops empty arenas. The others count as arenas of dead sessions, until
  // their trainers adopt() them. Call this once, before any other arena exists.
  struct RestoredMemory {
    uint64_t arenas = 0;
    uint64_t slabs = 0;
    uint64_t bytes = 0;
    uint64_t refused = 0;  // slabs and whole arenas that failed a check
  };
  RestoredMemory restore_kept(const std::function<bool(const ckpt::SnapshotKey&)>& wanted);
  // Idle work: fills the pool of memory for new arenas, in pieces of session_bytes_default, at most
  // as many as new sessions could get; frees memory that others need more. One step per call.
  // False: nothing to do for a while.
  bool warm();
  // The session's trainer is gone: frees leased slabs. Sealed slabs live on in their StagedSlabs,
  // durable ones as cache until the memory is needed.
  void session_ended(ArenaId arena);

  // Up to `count` slabs: free and warm ones, then durable (cached) ones, then held ones, each
  // oldest first.
  std::vector<uint32_t> lease(ArenaId arena, uint32_t count);
  // Maximum number of slabs that can be leased at once.
  uint32_t leasable(ArenaId arena) const;
  // Free slabs whose memory is being faulted in: they become leasable without further calls.
  uint32_t preparing(ArenaId arena) const;
  void unlease(ArenaId arena, uint32_t slab);
  // After adopt(): the client's claim of a slab for one snapshot. Each slab can be claimed once.
  Status claim_leased(ArenaId arena, uint32_t slab);
  void free_unclaimed(ArenaId arena);

  // Checks the claim against the slab (leased, fragments ascending, inside, disjoint, large ones
  // aligned) and takes ownership of the slab.
  Result<StagedSlab> seal(ArenaId arena, uint32_t slab, uint64_t payload_bytes,
                          std::vector<ckpt::ExtentFragment> fragments);

  ckpt::ArenaLayout layout(ArenaId arena) const;

  // Windows for restores.
  std::optional<uint32_t> take_restore_slab(ArenaId arena);
  void release_restore_slab(ArenaId arena, uint32_t slab);
  // Bytes of a slab from take_restore_slab().
  MutableByteView slab_bytes(ArenaId arena, uint32_t slab);
  // The registered buffer that slab_bytes() lies in; nullopt: plain I/O.
  std::optional<BufferId> slab_buffer(ArenaId arena, uint32_t slab) const;

  // -- versions that are only in memory (held_slabs.cc) --
  // Holds these checked slabs of a committed snapshot without writing them. They stay until newer
  // versions of all their units exist, or the slab is evicted: by lease(), oldest first, if nothing
  // else is left, or by an arena that needs the space of a dead session's arena.
  void hold(const ckpt::SnapshotKey& snapshot, std::vector<StagedSlab> slabs);
  // These units have a durable version as of this snapshot.
  void supersede(const ckpt::SnapshotKey& snapshot, const std::vector<ckpt::UnitId>& units);
  // Drops the run's versions that are not wanted.
  void keep_memory(ckpt::RunId run, const std::function<bool(const ckpt::SnapshotKey&)>& wanted);
  // Between pin and unpin nothing of the run is evicted: several restores must find the same data.
  void pin_memory(ckpt::RunId run);
  void unpin_memory(ckpt::RunId run);
  bool memory_pinned(ckpt::RunId run) const;
  // The unit's version in memory, if all of it is in trusted arenas of this uid.
  std::optional<MemoryVersion> memory_version(uid_t uid, ckpt::RunId run, ckpt::UnitId unit) const;

  // The memory level: finds a durable or held fragment of this snapshot that covers the range, for
  // the same uid.
  std::optional<MemoryLease> find_cached(uid_t uid, const ckpt::SnapshotKey& snapshot,
                                         ckpt::UnitId unit, uint64_t offset, uint64_t length);
  void drop_cached(ckpt::RunId run);  // a run was removed

  // Called whenever a slab of the arena becomes leasable: faulted in, freed or durable. It may run
  // inside any call that frees a slab, and may call lease().
  void set_on_slabs_ready(std::function<void(ArenaId)> callback);
  struct Stats {
    std::map<SlabState, uint64_t> slabs;
    uint64_t arena_bytes = 0;
    uint64_t arenas = 0;
    uint64_t warm_pool_bytes = 0;   // faulted in
    uint64_t memory_versions = 0;   // in memory only
    uint64_t evicted_versions = 0;  // since the start
    uint64_t ledger_errors = 0;     // writes of ledgers that failed, since the start
    bool zero_copy = true;          // false once registering any arena with the disk failed
  };
  Stats stats() const;
  void close();  // waits for pre-faults

 private:
  friend class StagedSlab;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
