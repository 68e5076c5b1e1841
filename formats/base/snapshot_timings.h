// SnapshotTimings: how long each part of one snapshot took.
//
// Parts in the order in which they happen. libckpt measures the first five for its rank; ckptd
// measures the last three for the snapshot as a whole. Where one value stands for several ranks,
// each part is the longest of any rank (keep_longest). A part that was not measured is 0.
//
// The parts are not the stall. The stall of a snapshot is the time for which it blocked the
// training thread, whatever the reason; a failed snapshot has one, too.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ckpt {

struct SnapshotTimings {
  uint64_t plan_ns = 0;       // making and checking the plan
  uint64_t begin_ns = 0;      // until ckptd has answered the begin
  uint64_t slab_wait_ns = 0;  // until slabs were free
  uint64_t copy_ns = 0;       // copies into slabs with CRC32C; of places, while any is lent
  uint64_t seal_ns = 0;       // handover of full slabs
  uint64_t write_ns = 0;      // from the last seal until the last extent is written and checked
  uint64_t sync_ns = 0;       // fdatasync of the segments, shared by a group commit
  uint64_t journal_ns = 0;    // append and sync of the commit record
  bool operator==(const SnapshotTimings&) const = default;
};

struct SnapshotPart {
  std::string_view name;  // label of metrics, and name in JSON
  uint64_t SnapshotTimings::*ns;
};
inline constexpr std::array<SnapshotPart, 8> kSnapshotParts{{
    {"plan", &SnapshotTimings::plan_ns},
    {"begin", &SnapshotTimings::begin_ns},
    {"slab_wait", &SnapshotTimings::slab_wait_ns},
    {"copy", &SnapshotTimings::copy_ns},
    {"seal", &SnapshotTimings::seal_ns},
    {"write", &SnapshotTimings::write_ns},
    {"sync", &SnapshotTimings::sync_ns},
    {"journal", &SnapshotTimings::journal_ns},
}};
inline constexpr size_t kClientParts = 5;  // the first ones: measured by libckpt

// Raises each part of `kept` to that of `other`.
inline void keep_longest(SnapshotTimings& kept, const SnapshotTimings& other) {
  for (const SnapshotPart& part : kSnapshotParts) {
    kept.*part.ns = std::max(kept.*part.ns, other.*part.ns);
  }
}

}  // namespace ckpt
