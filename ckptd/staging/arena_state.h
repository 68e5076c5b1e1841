// ArenaState: one session's arena and the state of each of its slabs. Private to staging.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ckptd/staging/slab_ledger.h"
#include "ckptd/staging/staging.h"
#include "formats/arena.h"
#include "formats/base/outstanding.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// Shared with checks on executor threads: a check sets this if it found exchanged pages. From then
// on nothing of the arena is written from pinned pages or served from memory.
struct ArenaTrust {
  std::atomic<bool> tampered{false};
};

struct SlabRecord {
  SlabState state = SlabState::kFree;
  bool reserved = false;           // for restores
  bool claimed = false;            // after adopt(): the client claimed it
  ckpt::base::Outstanding leases;  // MemoryLeases on it
  // While durable or held:
  uint64_t order = 0;
  ckpt::SnapshotKey snapshot;
  std::vector<ckpt::ExtentFragment> fragments;
};

// Warming and registration work on chunks: whole slabs of at least this size together, so that
// small slabs do not each take a slot of the ring's buffer table.
inline constexpr uint64_t kChunkBytes = 64ull << 20;

class ArenaState {
 public:
  ArenaState(ArenaId id, uid_t uid, ckpt::base::UniqueFd fd, ckpt::ArenaMapping guard,
             ckpt::ArenaMapping view, uint32_t reserved_slabs);

  uint32_t chunk_of(uint32_t slab) const { return slab / chunk_slabs; }
  uint32_t chunk_count() const { return static_cast<uint32_t>(buffers.size()); }
  MutableByteView chunk_bytes(const ckpt::ArenaMapping& mapping, uint32_t chunk) const;
  bool warm(uint32_t slab) const { return chunk_of(slab) < warm_chunks; }
  // The registered buffer for I/O of the slab. A check on another thread can revoke trust at any
  // time: call this once per operation. Restore slabs never feed a snapshot and keep their buffer.
  std::optional<BufferId> buffer_of(uint32_t slab) const {
    const bool trusted = slabs[slab].reserved || !trust->tampered.load();
    return trusted ? buffers[chunk_of(slab)] : std::nullopt;
  }
  // Memory for that I/O: in the pinned mapping if it is registered, else in the other one.
  MutableByteView io_bytes(uint32_t slab, const std::optional<BufferId>& buffer) const {
    return buffer.has_value() ? guard.slab(slab) : view.slab(slab);
  }
  // True if nothing but the memory level uses the arena.
  bool idle() const;

  const ArenaId id;
  const uid_t uid;
  const ckpt::base::UniqueFd fd;
  const ckpt::ArenaMapping guard;  // faulted in once: see page_guard.h
  const ckpt::ArenaMapping view;   // for the daemon's reads and writes
  const uint32_t chunk_slabs;
  const std::shared_ptr<ArenaTrust> trust = std::make_shared<ArenaTrust>();
  std::vector<SlabRecord> slabs;
  std::vector<std::optional<BufferId>> buffers;  // by chunk
  uint64_t small_bytes_registered = 0;           // of chunks that have small pages
  std::map<uint64_t, uint32_t> durable;          // oldest first
  std::map<uint64_t, uint32_t> held;             // oldest first
  uint32_t warm_chunks = 0;                      // chunks [0, warm_chunks) are faulted in
  bool warming = false;                          // the executor is faulting it in
  bool ended = false;                            // its session has ended
  bool parked = false;               // ended, but the trainer may return: see restore_kept()
  std::optional<SlabLedger> ledger;  // if there is a keeper
};

}  // namespace ckptd
