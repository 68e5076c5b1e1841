// StagePlan: how a snapshot's pieces come into the arena. Pure.
//
// A chunk is a run of bytes that lies together in the arena, gaps between fragments included. It
// comes there by copies, each one call of the copy engine:
//
//   gathered: small pieces. One pack gathers them into the chunk's slot of the gather buffer, where
//             everything lies as it will in the arena; one copy drains what lies together there.
//             Gaps that such a copy covers must be zero: the slot is cleared first.
//   direct:   long runs of device memory. The copy engine takes them from where they are; a kernel
//             reads them once for their CRC32C. They take no slot.
//
// Where places begin and end does not depend on that. A place that has both kinds of bytes has its
// CRC put together from theirs.
//
// Chunks that follow one another are a group: one pack gathers them, into slots that lie together,
// and one kernel takes the CRCs of what is direct in them.
//
// A plan grows while its beginning is being staged.
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

// A place that was lent.
struct StagedPlace {
  UnitId unit = 0;
  MutableByteView to;
  uint64_t id = 0;
};

struct StageChunk {
  std::byte* to = nullptr;  // in the arena
  uint64_t bytes = 0;
  bool in_slot = false;   // some of it is gathered
  bool has_gaps = false;  // inside a copy out of its slot
  size_t places_end = 0;  // of all places, the first that is in a later chunk
  size_t copies_end = 0;  // the same of all copies
};

// One call of the copy engine.
struct StageCopy {
  uint64_t at = 0;  // in the chunk
  uint64_t bytes = 0;
  const std::byte* from = nullptr;  // null: the chunk's slot, as far in as in the chunk
};

// The input of one group's kernels.
struct PackLists {
  std::vector<kernels::PackPiece> pieces;
  std::vector<kernels::PackRange> ranges;  // gathered bytes of one place that lie together
  uint64_t range_bytes = 0;                // of all ranges
  std::vector<kernels::ChecksumRun> runs;  // direct
  uint64_t run_bytes = 0;                  // of all runs
};
// The CRCs that these kernels have found, and the first place that is in the group.
struct GroupCrcs {
  size_t first_place = 0;
  const uint32_t* gathered = nullptr;  // by range
  const uint32_t* direct = nullptr;    // by run
};

// Which runs are direct: those of at least run_bytes_min bytes, in places that end within the
// plan's first `until` bytes.
struct DirectRule {
  uint64_t run_bytes_min = UINT64_MAX;
  uint64_t until = 0;
};

// The chunks of a group, and how many slots they take.
struct StageGroup {
  size_t chunks = 0;
  size_t slots = 0;
  bool is_whole = false;  // it would have no more if more chunks were there
};
// The next group of a snapshot, `groups` of which are queued, out of the chunks that are ready. Its
// first slot would be `slot` of `slots`. The first chunk goes alone, so that the link to the host
// has something to do at once; then twice as many each time, up to a quarter of the buffer: three
// quarters are left to drain beside the gathering. No group goes over the end of the buffer.
StageGroup next_group(std::span<const StageChunk> ready, size_t groups, size_t slot, size_t slots);

class StagePlan {
 public:
  // No chunk is longer than chunk_bytes; no place that is added may be either.
  explicit StagePlan(uint64_t chunk_bytes, const DirectRule& direct = {})
      : chunk_bytes_(chunk_bytes), direct_(direct) {}

  // How many bytes the next place may have at most: what is left of a chunk, in whole blocks so
  // that no cut leaves a gap, or a whole one.
  uint64_t room() const;
  // Places come in the order in which they were lent: ascending within a slab. The sources are
  // what goes there, in this order.
  void add(const StagedPlace& place, std::span<const DeviceBytes> sources);
  // The last chunk stays as it is: the next place begins another.
  void close() { is_open_ = false; }
  // So many chunks stay as they are.
  size_t ready() const { return chunks_.size() - (is_open_ ? 1 : 0); }

  const std::vector<StageChunk>& chunks() const { return chunks_; }
  // Those of all chunks, in their order; ascending by `to` within a chunk.
  const std::vector<StagedPlace>& places() const { return places_; }
  size_t first_place(size_t chunk) const { return chunk == 0 ? 0 : chunks_[chunk - 1].places_end; }
  // Ascending by `at`. All bytes of the chunk but gaps, which are zero in the arena already.
  std::span<const StageCopy> copies(size_t chunk) const;
  // The chunk with which the last byte of the unit is gathered, or copied; -1 if the unit is not in
  // the plan.
  int64_t last_chunk_of(UnitId unit) const;
  // The last chunk with a direct copy of the unit's bytes, or of any's; -1 if there is none.
  int64_t last_direct_of(UnitId unit) const;
  int64_t last_direct() const { return static_cast<int64_t>(direct_up_to_) - 1; }
  // Replaces `lists` by those of the kernels for chunks [first, end). What is gathered goes into
  // slots of chunk_bytes, one after the other, which only chunks with gathered bytes have.
  void list(size_t first, size_t end, PackLists& lists) const;
  // The CRC of a place out of those of its parts.
  uint32_t crc_of(size_t place, const GroupCrcs& found) const;

 private:
  struct Source {
    DeviceBytes memory;
    bool is_direct = false;
  };
  // How many ranges and runs there are in front of something.
  struct Parts {
    size_t gathered = 0;
    size_t direct = 0;
  };
  // By unit: how many chunks there are up to the one with its last byte, and up to the one with its
  // last direct copy; 0 if there is none.
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
