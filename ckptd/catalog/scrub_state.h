// What a scrub has to remember: where it stands, and what it found. Unlike all else in the catalog
// it is not in the journal: an index that is made anew has none, and the next pass begins at the
// front.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/ids.h"

namespace ckptd {

// Place of damaged bytes of a unit. Later commits of the run may share these bytes.
struct DamagedBytes {
  ckpt::RunId run = 0;  // 0: not known; an earlier version of ckptd has found the damage
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;  // of the extent's header in the segment
  uint64_t offset = 0;         // in the segment; the unit's bytes in this extent
  uint64_t bytes = 0;          // 0: the place is not known
  // The commit that wrote the extent.
  ckpt::LineageId written_by_lineage = 0;
  ckpt::Step written_by_step = 0;
  bool operator==(const DamagedBytes&) const = default;
};

// Damage that was found and, so far, not seen to be gone.
struct ScrubDamage {
  std::string run;
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  std::string unit;
  std::string reason;
  uint64_t found_ns = 0;  // the last time; wall clock, since 1970
  uint64_t pass = 0;      // the pass under way then, or the last one before
  DamagedBytes place = {};
  bool operator==(const ScrubDamage&) const = default;
};

// The first extent that a pass has not read yet. Commits are read by run, then by their records.
struct ScrubCursor {
  ckpt::RunId run = 0;
  uint64_t sequence = 0;  // of the commit's journal record
  uint64_t extent = 0;    // of the commit
  uint64_t extents = 0;   // that it had: with another number now, it is read from its first again
  bool operator==(const ScrubCursor&) const = default;
};

// A pass over every live extent of the store.
struct ScrubPass {
  uint64_t number = 0;  // from 1 on; 0: there was none
  uint64_t began_ns = 0;
  uint64_t ended_ns = 0;          // 0: it has not
  uint64_t bytes_per_second = 0;  // that was asked for; 0: the configured pace
  uint64_t checked_bytes = 0;     // headers and padded payloads read
  uint64_t commits = 0;
  ScrubCursor cursor;
  // Units that could not be checked, because the system refused to read them; why the last one.
  uint64_t unchecked = 0;
  std::string unchecked_reason;
  bool operator==(const ScrubPass&) const = default;
};

struct ScrubState {
  ScrubPass last;                   // the last one that came to its end
  std::optional<ScrubPass> pass;    // under way
  uint64_t read_back_sequence = 0;  // commits up to this record were read back, or given up
  std::vector<ScrubDamage> damages;
  uint64_t damages_left_out = 0;  // findings since the last pass began for which there was no room
  bool operator==(const ScrubState&) const = default;
};

}  // namespace ckptd
