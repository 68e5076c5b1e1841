// Versions of units, and the places on disk that hold their bytes. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "formats/base/ids.h"

namespace ckptd {

// RUN@STEP and its relatives, resolved.
struct ViewPoint {
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  auto operator<=>(const ViewPoint&) const = default;
};

// Where the base of a delta lies: the same range of the unit, in an extent of an earlier commit. A
// base is never a delta itself.
struct BasePlace {
  uint32_t crc32c = 0;  // of the base's bytes, as they were staged
  uint32_t codec = 0;
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;
  uint64_t payload_offset = 0;
  uint32_t encoded_crc32c = 0;
  uint64_t encoded_bytes = 0;
  ViewPoint written_by = {};
  uint32_t deltas = 0;  // consecutive deltas to this base, up to and including this version
  bool operator==(const BasePlace&) const = default;
};

// Where an extent begins: its segment and the byte offset in it.
using ExtentBegin = std::pair<ckpt::SegmentId, uint64_t>;

// A place of bytes on disk that holds part of a unit version.
struct FragmentPlace {
  uint64_t offset = 0;  // in the unit
  uint64_t length = 0;
  uint32_t crc32c = 0;
  uint32_t codec = 0;
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;   // of the extent header in the segment
  uint64_t payload_offset = 0;  // of the fragment in the segment file
  uint32_t encoded_crc32c = 0;  // without a codec zero, as is the next
  uint64_t encoded_bytes = 0;
  ViewPoint written_by = {};           // lineage 0: own commit; else the earlier writer
  std::optional<BasePlace> base = {};  // only for a delta
  bool operator==(const FragmentPlace&) const = default;
  bool shared() const { return written_by.lineage != 0; }
  // Size on disk, in bytes.
  uint64_t stored_bytes() const { return codec == 0 ? length : encoded_bytes; }
  uint64_t stored_end() const { return payload_offset + stored_bytes(); }
};
// The base of a delta, as a FragmentPlace.
FragmentPlace base_of(const FragmentPlace& delta);

// One unit as of one commit.
struct UnitVersion {
  ckpt::UnitId unit = 0;
  ckpt::SnapshotKey snapshot;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;                   // of the whole unit
  std::vector<FragmentPlace> fragments;  // ascending by offset, covering the unit exactly
  bool operator==(const UnitVersion&) const = default;
};

}  // namespace ckptd
