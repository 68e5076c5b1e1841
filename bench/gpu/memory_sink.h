// MemorySink: the arena of a session without its daemon. What the client's stager for GPUs asks of
// libckpt is places (ckpt_arena, ckpt_snapshot_reserve, _filled, _end, _abort, ckpt_session_error),
// and its restorer windows (ckpt_restore_next, _release, _mismatch); this file's source defines
// those functions, over slabs of plain shared memory that are free again when their snapshot has
// ended. So both run as they are where neither a daemon nor its libraries are.
//
// A program takes either this or libckpt. Nothing is written to a disk, and no slab is waited for:
// a snapshot that does not fit is refused.
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

struct ckpt_session {
  ~ckpt_session();

  ckpt::MutableByteView arena;  // mapped shared, as a real one
  uint64_t slab_bytes = 0;
  uint32_t slabs_free = 0;  // the last ones of the arena
  std::string error;
};

struct ckpt_snapshot {
  // What a place was given back with.
  struct Filled {
    ckpt::ByteView memory;
    uint64_t unit = 0;
    uint64_t offset = 0;  // in the unit
    uint32_t crc32c = 0;
    bool is_filled = false;
  };

  ckpt_session* session = nullptr;
  uint32_t slabs_used = 0;
  std::optional<ckpt::lib::SlabLayout> layout;  // of the last of them
  std::vector<Filled> places;                   // by id
  bool ended = false;
  bool failed = false;
};

// What a snapshot has left in the arena, a window for each slab, as a daemon restores it.
struct ckpt_restore {
  struct Window {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    std::vector<ckpt_restore_piece> pieces;  // a range for each unit
    bool released = false;
  };

  std::vector<Window> windows;
  size_t next = 0;
  size_t mismatches = 0;
};

namespace bench::gpu {

// kResourceExhausted if there is not so much memory.
ckpt::Result<std::unique_ptr<ckpt_session>> make_sink(uint64_t slab_bytes, uint32_t slabs);
// Of one at a time: it takes all slabs.
ckpt_snapshot begin_snapshot(ckpt_session& sink);
// Of a snapshot that has ended, before the next begins.
ckpt_restore begin_restore(const ckpt_snapshot& snapshot);
// The same for any ranges of its units. A place whose bytes do not have its CRC is a mismatch at
// once; the CRCs of the pieces are then those of what is there.
ckpt_restore begin_restore(const ckpt_snapshot& snapshot,
                           std::span<const ckpt_cuda_destination> ranges);

}  // namespace bench::gpu
