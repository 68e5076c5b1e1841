// StagePlan: how a snapshot's pieces go through the gather buffer into the arena. Pure.
//
// A chunk is a run of bytes that lies together in the arena, gaps between fragments included, so
// that one copy drains it; in its slot of the buffer everything lies as it will in the arena. Gaps
// must be zero there: a chunk with gaps has its slot cleared first. Chunks that follow one another
// are a group: one pack gathers them, into slots that lie together.
//
// It grows while its beginning is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/ids.h"
#include "kernels/pack.h"

namespace ckpt::lib {

// Device memory.
struct DeviceBytes {
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
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
  bool has_gaps = false;
  size_t places_end = 0;  // of all places, the first that is in a later chunk
};

// What one pack gathers.
struct PackLists {
  std::vector<kernels::PackPiece> pieces;
  std::vector<kernels::PackRange> ranges;  // a place each
  uint64_t bytes = 0;                      // of all ranges
};

// How many chunks the next group of a snapshot has, `groups` of which are there, if its first one
// goes into slot `slot` of `slots`. The first chunk goes alone, so that the link to the host has
// something to do at once; then twice as many each time, up to a quarter of the buffer: three
// quarters are left to drain beside the gathering. No group goes over the end of the buffer.
size_t group_chunks(size_t groups, size_t slot, size_t slots);

class StagePlan {
 public:
  // No chunk is longer than chunk_bytes; no place that is added may be either.
  explicit StagePlan(uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

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
  // The chunk with which the last byte of the unit is gathered; -1 if the unit is not in the plan.
  int64_t last_chunk_of(UnitId unit) const;
  // Replaces `lists` by those of the pack that gathers chunks [first, end), each of them into a
  // slot of chunk_bytes.
  void list(size_t first, size_t end, PackLists& lists) const;

 private:
  const uint64_t chunk_bytes_;
  bool is_open_ = false;  // the last chunk
  std::vector<StageChunk> chunks_;
  std::vector<StagedPlace> places_;
  std::vector<DeviceBytes> sources_;  // of all places, in their order
  std::vector<size_t> sources_end_;   // by place
  std::vector<size_t> chunks_up_to_;  // by unit, to the one with its last byte; 0: not there
};

}  // namespace ckpt::lib
