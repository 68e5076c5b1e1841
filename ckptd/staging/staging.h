// Staging: the arenas of all sessions and the state of every slab in them.
//
//   free -> leased -> sealed -> writing -> durable (kept as cache) -> free
//                      `-> held (memory level only) -> free
//   restoring: reserved for windows of a restore
//
// A slab's bytes belong to the client while it is leased, and to the daemon (through a StagedSlab)
// from seal to durable. The client can still write into or punch holes into what it gave away; the
// checks against that are here: page_guard (were pages exchanged under the daemon's mapping?) and
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

// Sees the bytes of each fragment while check_payload() has them in the cache: [from, to) of the
// fragment's bytes come next, in ascending pieces.
using PayloadObserver = std::function<void(const ckpt::ExtentFragment& fragment, ByteView bytes,
                                           uint64_t from, uint64_t to)>;

// A sealed slab: whoever holds this value owns the slab's bytes. Dropping it frees the slab.
class StagedSlab {
 public:
  StagedSlab() = default;
  StagedSlab(StagedSlab&&) noexcept;
  StagedSlab& operator=(StagedSlab&&) noexcept;
  ~StagedSlab();

  ArenaId arena() const { return arena_; }
  uint32_t slab() const { return slab_; }
  // Padded to whole blocks. payload() is what the disk takes, and nobody else touches: a read by
  // the processor would hide pages that were exchanged (page_guard.h). Such reads go by bytes().
  MutableByteView payload() const { return payload_; }
  ByteView bytes() const { return view_; }
  uint64_t payload_bytes() const { return payload_bytes_; }
  std::optional<BufferId> buffer() const { return buffer_; }
  const std::vector<ckpt::ExtentFragment>& fragments() const { return fragments_; }
  explicit operator bool() const { return staging_ != nullptr; }

  // From sealed to writing, and from writing to durable, when the slab goes to the cache of the
  // memory level and this value is empty afterwards.
  void mark_writing();
  void mark_durable(const ckpt::SnapshotKey& snapshot);
  // From sealed to held, all slabs of a snapshot that no disk gets, at once: see Staging::hold().
  static void mark_held(std::vector<StagedSlab> slabs, const ckpt::SnapshotKey& snapshot);

 private:
  friend class Staging;
  friend Status check_payload(const StagedSlab& slab, const PayloadObserver& observer);
  Staging* staging_ = nullptr;
  ArenaId arena_ = 0;
  uint32_t slab_ = 0;
  MutableByteView payload_;
  ByteView guard_;  // the same bytes in the two mappings of the daemon: see page_guard.h
  ByteView view_;
  std::shared_ptr<ArenaTrust> trust_;
  uint64_t payload_bytes_ = 0;
  std::optional<BufferId> buffer_;
  std::vector<ckpt::ExtentFragment> fragments_;
};

// Do the bytes still match? Reads the whole payload once (CRC of every fragment, zero gaps and
// padding) and looks at the page tables. kCorrupt names what differs. If pages were exchanged, the
// arena is never trusted again: no zero-copy writes from it, nothing served from its memory.
// Runs on an executor thread; thread-safe for one slab. So does the observer, if there is one.
Status check_payload(const StagedSlab& slab, const PayloadObserver& observer = {});

// A version of a unit that no disk has.
struct MemoryVersion {
  ckpt::SnapshotKey snapshot;
  std::vector<ckpt::ExtentFragment> fragments;  // ascending by offset
};

// Bytes of a unit version that lie in memory. Holding a lease keeps the slab from being reused.
struct MemoryLease {
  ByteView bytes;
  std::shared_ptr<void> hold;
};

class Staging {
 public:
  struct Options {
    uint64_t arena_bytes_total = 2ull << 30;  // all arenas together, those of dead sessions too
    uint64_t session_bytes_default = 512ull << 20;
    uint64_t session_bytes_max = UINT64_MAX;  // of one arena; who asks for more is refused
    // Of all arenas of a user together, those of dead sessions too; empty: no bound but the total.
    std::function<uint64_t(uid_t uid)> user_bytes_max;
    uint64_t warm_pool_bytes = 0;  // beside the arenas, for those to come: see warm()
    uint32_t restore_slabs = 2;    // of each arena, never leased to snapshots
    // Bytes that can be had without swapping; empty: as the kernel says.
    std::function<uint64_t()> available_memory;
    MemoryKeeper* keeper = nullptr;  // of arenas, over a restart; none: they go with us
    ckpt::base::Hash128 store;       // whose ledgers are believed
  };
  Staging(Disk& disk, Executor& executor, const Options& options);
  ~Staging();  // asserts that no StagedSlab, lease or pre-fault is outstanding: close() first

  // A new arena for a session of `uid`. Slabs become leasable as they are faulted in, on the
  // executor; on_slabs_ready is told. kResourceExhausted if the total, or what the user may have of
  // it, is used up even after the caches of dead sessions were given back; the message states the
  // numbers.
  struct Granted {
    ArenaId arena = 0;
    int fd = -1;  // to pass to the client; stays owned by the arena
    ckpt::ArenaLayout layout;
    uint64_t warm_bytes = 0;  // from its first byte on
  };
  Result<Granted> create(uid_t uid, uint64_t bytes_wanted, uint64_t slab_bytes);
  // Takes back an arena that a client kept over a daemon restart. Its slabs start as leased, but
  // for those reserved for restores: no snapshot ever had one.
  Result<Granted> adopt(uid_t uid, ckpt::base::UniqueFd fd, uint64_t arena_bytes,
                        uint64_t slab_bytes);
  // What the last daemon left with the keeper (kept_memory.cc): slabs whose snapshots are `wanted`
  // and whose bytes all match are again what they were, held or durable. Blocks until every byte is
  // checked. Arenas with nothing in them are let go. The others are as those of dead sessions,
  // until their trainer brings its own back to adopt(). Once, before any other arena.
  struct TakenBack {
    uint64_t arenas = 0;
    uint64_t slabs = 0;
    uint64_t bytes = 0;
    uint64_t refused = 0;  // slabs and whole arenas that were not believed
  };
  TakenBack take_back(const std::function<bool(const ckpt::SnapshotKey&)>& wanted);
  // Nothing else is to be done: goes on with a pool of memory for new arenas, in pieces of
  // session_bytes_default, not more of them than new sessions could get, and gives up what the
  // machine needs more. A step at a time. False: there is nothing to be done for a while.
  bool warm();
  // Its trainer is gone: leased slabs are freed, sealed ones live on in their StagedSlabs, durable
  // ones stay as cache until memory is wanted.
  void session_ended(ArenaId arena);

  // Up to `count` slabs that are free and warm; then durable (cached) ones, then held ones, each
  // the oldest first.
  std::vector<uint32_t> lease(ArenaId arena, uint32_t count);
  // Slabs that could ever be leased at once.
  uint32_t leasable(ArenaId arena) const;
  // Free slabs whose memory is being faulted in: they become leasable without anybody's doing.
  uint32_t preparing(ArenaId arena) const;
  void unlease(ArenaId arena, uint32_t slab);
  // After adopt(): what the client says it had, for one snapshot. Each slab can be claimed once.
  Status claim_leased(ArenaId arena, uint32_t slab);
  void free_unclaimed(ArenaId arena);

  // Checks the claim against the slab (leased, fragments ascending, inside, disjoint, large ones
  // aligned) and takes the slab over.
  Result<StagedSlab> seal(ArenaId arena, uint32_t slab, uint64_t payload_bytes,
                          std::vector<ckpt::ExtentFragment> fragments);

  ckpt::ArenaLayout layout(ArenaId arena) const;

  // Windows for restores.
  std::optional<uint32_t> take_restore_slab(ArenaId arena);
  void give_back_restore_slab(ArenaId arena, uint32_t slab);
  // Of a slab that take_restore_slab() gave.
  MutableByteView slab_bytes(ArenaId arena, uint32_t slab);
  // The registered buffer that slab_bytes() lies in; nullopt: plain I/O.
  std::optional<BufferId> slab_buffer(ArenaId arena, uint32_t slab) const;

  // -- versions that are in memory only (held_slabs.cc) --
  // A snapshot was committed; these slabs of it, checked, are not written. They stay until newer
  // versions of all their units are there, or their slab is wanted: by lease(), which takes the
  // oldest when nothing else is left, or by an arena that needs the space of a dead session's.
  void hold(const ckpt::SnapshotKey& snapshot, std::vector<StagedSlab> slabs);
  // A durable version of these units is there, as of this snapshot.
  void supersede(const ckpt::SnapshotKey& snapshot, const std::vector<ckpt::UnitId>& units);
  // Drops those of the run that are of no use any more.
  void keep_memory(ckpt::RunId run, const std::function<bool(const ckpt::SnapshotKey&)>& wanted);
  // Between pin and unpin nothing of the run is evicted: several restores are to find the same.
  void pin_memory(ckpt::RunId run);
  void unpin_memory(ckpt::RunId run);
  bool memory_pinned(ckpt::RunId run) const;
  // The unit's, if it has one, all of it in arenas of this uid that can be trusted.
  std::optional<MemoryVersion> memory_version(uid_t uid, ckpt::RunId run, ckpt::UnitId unit) const;

  // The memory level: a durable or held fragment of this snapshot that covers the range, for the
  // same uid.
  std::optional<MemoryLease> find_cached(uid_t uid, const ckpt::SnapshotKey& snapshot,
                                         ckpt::UnitId unit, uint64_t offset, uint64_t length);
  void drop_cached(ckpt::RunId run);  // a run was removed

  // Told whenever a slab of the arena became leasable: faulted in, freed or durable. It may run
  // inside any call that frees one, and may call lease().
  void set_on_slabs_ready(std::function<void(ArenaId)> callback);
  struct Stats {
    std::map<SlabState, uint64_t> slabs;
    uint64_t arena_bytes = 0;
    uint64_t arenas = 0;
    uint64_t warm_pool_bytes = 0;   // faulted in
    uint64_t memory_versions = 0;   // in memory only
    uint64_t evicted_versions = 0;  // since the start
    uint64_t ledger_errors = 0;     // writes of ledgers that failed, since the start
    bool zero_copy = true;          // false once any arena could not be registered with the disk
  };
  Stats stats() const;
  void close();  // waits for pre-faults

 private:
  friend class StagedSlab;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
