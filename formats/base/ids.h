// Numbers that identify runs, units and so on. docs/concepts.md defines the terms.
#pragma once

#include <compare>
#include <cstdint>

namespace ckpt {

using RunId = uint64_t;      // given by the store when the run is created; 0 is never used
using LineageId = uint32_t;  // 1, 2, ... within a run; 0 means "none" or "the current one"
using UnitId = uint32_t;     // index in the run's unit registration order
using SegmentId = uint64_t;  // 1, 2, ... within a store
using Step = uint64_t;       // optimizer steps applied
using Epoch = uint64_t;      // 1, 2, ... within a run; 0 means "no epoch yet"
using Rank = uint32_t;       // position in the group, 0 .. size-1
using SessionId =
    uint64_t;  // one connection of one trainer rank; not reused within a daemon's life

inline constexpr uint64_t kBlockBytes = 4096;  // alignment of everything that O_DIRECT touches

// One attempt to take a snapshot. A step can be attempted again after a failure.
struct SnapshotKey {
  RunId run = 0;
  LineageId lineage = 0;
  Epoch epoch = 0;
  Step step = 0;
  uint32_t attempt = 0;
  auto operator<=>(const SnapshotKey&) const = default;
};

}  // namespace ckpt
