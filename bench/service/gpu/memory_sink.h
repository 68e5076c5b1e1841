// MemorySink: the arena of a session without a daemon, so that the client's GPU stager and restorer
// run where neither ckptd nor its libraries exist. The stager asks libckpt for places (ckpt_arena,
// ckpt_snapshot_reserve, _filled, _end, _abort, ckpt_session_error), the restorer for windows
// (ckpt_restore_next, _release, _mismatch). The source of this header defines those functions over
// slabs of plain shared memory. A slab is free again when its snapshot has ended.
//
// A program links either this or libckpt. Nothing is written to a disk. A snapshot that does not
// fit the free slabs is refused at once; no call waits for a slab.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/ckpt_cuda.h"
#include "ckpt/ckpt_windows.h"
#include "client/src/slab_layout.h"
#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace bench::gpu {

struct MemorySink {
  ~MemorySink();

  ckpt::MutableByteView arena;  // MAP_SHARED, as with ckptd
  uint64_t slab_bytes = 0;
  uint32_t slabs_free = 0;  // the last slabs of the arena
  std::string error;
};

struct SinkSnapshot {
  // A reserved place, with the values passed to ckpt_snapshot_filled.
  struct Filled {
    ckpt::ByteView memory;
    uint64_t unit = 0;
    uint64_t offset = 0;  // in the unit
    uint32_t crc32c = 0;
    bool is_filled = false;
  };

  MemorySink* sink = nullptr;
  uint32_t slabs_used = 0;
  std::optional<ckpt::lib::SlabLayout> layout;  // of the slab used last
  std::vector<Filled> places;                   // by id
  bool ended = false;
  bool failed = false;
};

// Restore of a snapshot from the arena, one window per slab, as ckptd delivers it.
struct SinkRestore {
  struct Window {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    std::vector<ckpt_restore_piece> pieces;  // `range`: the unit, or the index of the range
    bool released = false;
  };

  std::vector<Window> windows;
  size_t next = 0;
  size_t mismatches = 0;
};

// Handles of these objects for functions of libckpt's C ABI: its types stay opaque.
inline ckpt_session* handle(MemorySink& sink) { return reinterpret_cast<ckpt_session*>(&sink); }
inline ckpt_snapshot* handle(SinkSnapshot& snapshot) {
  return reinterpret_cast<ckpt_snapshot*>(&snapshot);
}
inline ckpt_restore* handle(SinkRestore& restore) {
  return reinterpret_cast<ckpt_restore*>(&restore);
}

// kResourceExhausted if there is not enough memory.
ckpt::Result<std::unique_ptr<MemorySink>> make_sink(uint64_t slab_bytes, uint32_t slabs);
// Begins a snapshot that takes all slabs. Only one snapshot may exist at a time.
SinkSnapshot begin_snapshot(MemorySink& sink);
// Begins a restore of a snapshot that has ended; the next snapshot must not have begun.
SinkRestore begin_restore(const SinkSnapshot& snapshot);
// Restores only these ranges of the units. A place whose bytes do not match its CRC counts as a
// mismatch at once; the CRCs of the pieces are computed from the bytes in the arena.
SinkRestore begin_restore(const SinkSnapshot& snapshot,
                          std::span<const ckpt_cuda_destination> ranges);

}  // namespace bench::gpu
