// StagePlan: how a snapshot's pieces go through the gather buffer into the arena. Pure.
//
// A chunk is a run of bytes that lies together in the arena, gaps between fragments included, so
// that one copy drains it; in its slot of the buffer everything lies as it will in the arena. Gaps
// must be zero there: a chunk with gaps has its slot cleared first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/ids.h"

namespace ckpt::lib {

// Device memory.
struct DeviceBytes {
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

// A place that was lent, and what goes there, in this order.
struct StagedPlace {
  UnitId unit = 0;
  std::vector<DeviceBytes> sources;
  MutableByteView to;
  uint64_t id = 0;
};

struct StageChunk {
  std::byte* to = nullptr;  // in the arena
  uint64_t bytes = 0;
  bool has_gaps = false;
  std::vector<StagedPlace> places;  // ascending by `to`
  uint64_t offset_of(const StagedPlace& place) const {
    return static_cast<uint64_t>(place.to.data() - to);
  }
};

class StagePlan {
 public:
  // No chunk is longer than chunk_bytes; no place that is added may be either.
  explicit StagePlan(uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  // How many bytes the next place may have at most: what is left of a chunk, in whole blocks so
  // that no cut leaves a gap, or a whole one.
  uint64_t room() const;
  // Places come in the order in which they were lent: ascending within a slab.
  void add(const StagedPlace& place);

  const std::vector<StageChunk>& chunks() const { return chunks_; }
  // The chunk with which the last byte of the unit is gathered; -1 if the unit is not in the plan.
  int64_t last_chunk_of(UnitId unit) const;

 private:
  const uint64_t chunk_bytes_;
  std::vector<StageChunk> chunks_;
  std::map<UnitId, size_t> last_chunk_;
};

}  // namespace ckpt::lib
