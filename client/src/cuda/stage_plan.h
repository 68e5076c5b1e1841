// StagePlan: how a snapshot's pieces get into the arena. Pure.
//
// A chunk is a contiguous run of bytes in the arena, gaps between fragments included. It is filled
// by copies, each one call of the copy engine:
//
//   gathered: small pieces. One pack gathers them into the chunk's slot of the gather buffer, in
//             the arena's layout; one copy drains each contiguous run of the slot.
//             Gaps that such a copy covers must be zero: the slot is cleared first.
//   direct:   long runs of device memory. The copy engine reads them in place; a kernel
//             reads them once for their CRC32C. They take no slot.
//
// The boundaries of places do not depend on that. If a place has both kinds of bytes, its CRC is
// combined from the CRCs of both.
//
// Consecutive chunks form a group: one pack gathers them, into adjacent slots, and one kernel
// computes the CRCs of their direct runs.
//
// A plan grows while its first chunks are being staged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/ids.h"
#include "kernels/pack.h"

namespace ckpt::lib {

// A run of memory that the device reads.
struct DeviceBytes {
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
  bool on_host = false;  // pinned: never direct, since CUDA copies from host to host by itself
};

// A place lent by the snapshot.
struct StagedPlace {
  UnitId unit = 0;
  MutableByteView to;
  uint64_t id = 0;
};

struct StageChunk {
  std::byte* to = nullptr;  // in the arena
  uint64_t bytes = 0;
  bool in_slot = false;   // some of its bytes are gathered
  bool has_gaps = false;  // within a copy out of its slot
  size_t places_end = 0;  // index of the first place in a later chunk
  size_t copies_end = 0;  // index of the first copy in a later chunk
};

// One call of the copy engine.
struct StageCopy {
  uint64_t at = 0;  // in the chunk
  uint64_t bytes = 0;
  const std::byte* from = nullptr;  // null: the chunk's slot, at the same offset
};

// The input of one group's kernels.
struct PackLists {
  std::vector<kernels::PackPiece> pieces;
  std::vector<kernels::PackRange> ranges;  // contiguous gathered bytes of one place
  uint64_t range_bytes = 0;                // of all ranges
  std::vector<kernels::ChecksumRun> runs;  // direct
  uint64_t run_bytes = 0;                  // of all runs
};
// The CRCs computed by these kernels, and the group's first place.
struct GroupCrcs {
  size_t first_place = 0;
  const uint32_t* gathered = nullptr;  // by range
  const uint32_t* direct = nullptr;    // by run
};

// Selects direct runs: those of at least run_bytes_min bytes, in places that end within the
// plan's first `until` bytes.
struct DirectRule {
  uint64_t run_bytes_min = UINT64_MAX;
  uint64_t until = 0;
};

// The chunks of a group, and the number of its slots.
struct StageGroup {
  size_t chunks = 0;
  size_t slots = 0;
  bool is_whole = false;  // more ready chunks would not make the group larger
};
// The next group of a snapshot, `groups` of which are queued, out of the ready chunks. Its first
// slot would be `slot` of `slots`. The first chunk forms a group alone, to busy the link to the
// host at once; then groups double in size, up to a quarter of the buffer: three quarters are left
// to drain during the gathering. No group wraps around the end of the buffer.
StageGroup next_group(std::span<const StageChunk> ready, size_t groups, size_t slot, size_t slots);

class StagePlan {
 public:
  // No chunk is longer than chunk_bytes; added places may not be longer either.
  explicit StagePlan(uint64_t chunk_bytes, const DirectRule& direct = {})
      : chunk_bytes_(chunk_bytes), direct_(direct) {}

  // The largest next place: the rest of a chunk, in whole blocks so that no cut leaves a gap, or a
  // whole chunk.
  uint64_t room() const;
  // Adds places in the order in which they were lent: ascending within a slab. The sources are the
  // place's bytes, in this order.
  void add(const StagedPlace& place, std::span<const DeviceBytes> sources);
  // Closes the last chunk: the next place begins another chunk.
  void close() { is_open_ = false; }
  // Number of closed chunks. Closed chunks do not change.
  size_t ready() const { return chunks_.size() - (is_open_ ? 1 : 0); }

  const std::vector<StageChunk>& chunks() const { return chunks_; }
  // Places of all chunks, in order of chunks; ascending by `to` within a chunk.
  const std::vector<StagedPlace>& places() const { return places_; }
  size_t first_place(size_t chunk) const { return chunk == 0 ? 0 : chunks_[chunk - 1].places_end; }
  // Ascending by `at`. Covers the chunk without its gaps, which are zero in the arena already.
  std::span<const StageCopy> copies(size_t chunk) const;
  // The chunk whose gather or copy completes the unit, by the unit's last byte; -1 if the unit is
  // not in the plan.
  int64_t last_chunk_of(UnitId unit) const;
  // The last chunk with a direct copy of the unit's bytes, or of any unit's; -1: none.
  int64_t last_direct_of(UnitId unit) const;
  int64_t last_direct() const { return static_cast<int64_t>(direct_up_to_) - 1; }
  // Replaces `lists` by the kernels' input for chunks [first, end). Gathered bytes go into slots of
  // chunk_bytes, one after the other; chunks without gathered bytes have no slot.
  void list(size_t first, size_t end, PackLists& lists) const;
  // The CRC of a place, combined from the CRCs of its parts.
  uint32_t crc_of(size_t place, const GroupCrcs& found) const;

 private:
  struct Source {
    DeviceBytes memory;
    bool is_direct = false;
  };
  // Number of ranges and runs before a position.
  struct Parts {
    size_t gathered = 0;
    size_t direct = 0;
  };
  // By unit: number of chunks up to the one with its last byte, and up to the one with its last
  // direct copy; 0 if there is none.
  struct UpTo {
    size_t chunks = 0;
    size_t direct = 0;
  };
  size_t first_source(size_t place) const { return place == 0 ? 0 : sources_end_[place - 1]; }
  void add_direct(StageChunk& chunk, uint64_t at, const DeviceBytes& source);
  void add_gathered(StageChunk& chunk, uint64_t at, const DeviceBytes& source);

  const uint64_t chunk_bytes_;
  const DirectRule direct_;
  bool is_open_ = false;  // the last chunk
  uint64_t bytes_ = 0;    // of all places
  std::vector<StageChunk> chunks_;
  std::vector<StagedPlace> places_;
  std::vector<StageCopy> copies_;
  std::vector<Source> sources_;      // of all places, in their order
  std::vector<size_t> sources_end_;  // by place
  std::vector<Parts> parts_before_;  // by place
  Parts parts_;                      // of all places
  std::vector<UpTo> up_to_;          // by unit
  size_t direct_up_to_ = 0;          // of all units
};

}  // namespace ckpt::lib
