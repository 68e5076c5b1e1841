// State of scrub: its position and its findings. Unlike everything else in the catalog, this
// state is not in the journal. A rebuilt index has no scrub state, and the next pass starts from
// the beginning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/ids.h"

namespace ckptd {

// Place of damaged bytes of a unit. Later commits of the run may share these bytes.
struct DamagedBytes {
  ckpt::RunId run = 0;  // 0: unknown; found by an earlier version of ckptd
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;  // of the extent's header in the segment
  uint64_t offset = 0;         // of the unit's bytes in this extent, in the segment
  uint64_t bytes = 0;          // 0: the place is unknown
  // The commit that wrote the extent.
  ckpt::LineageId written_by_lineage = 0;
  ckpt::Step written_by_step = 0;
  bool operator==(const DamagedBytes&) const = default;
};

// Damage that was found and not yet verified as gone.
struct ScrubDamage {
  std::string run;
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  std::string unit;
  std::string reason;
  uint64_t found_ns = 0;  // most recently; wall clock, since 1970
  uint64_t pass = 0;      // the pass that was running then, or the last one before
  DamagedBytes place = {};
  bool operator==(const ScrubDamage&) const = default;
};

// The first extent that a pass has not read yet. Commits are read by run, then by their records.
struct ScrubCursor {
  ckpt::RunId run = 0;
  uint64_t sequence = 0;  // of the commit's journal record
  uint64_t extent = 0;    // of the commit
  uint64_t extents = 0;   // its count then; a different count restarts the commit
  bool operator==(const ScrubCursor&) const = default;
};

// A pass over every live extent of the store.
struct ScrubPass {
  uint64_t number = 0;  // from 1 on; 0: there was none
  uint64_t began_ns = 0;
  uint64_t ended_ns = 0;          // 0: not finished
  uint64_t bytes_per_second = 0;  // requested pace; 0: the configured pace
  uint64_t checked_bytes = 0;     // headers and padded payloads read
  uint64_t commits = 0;
  ScrubCursor cursor;
  // Units that could not be checked because the system refused to read them, and the latest reason.
  uint64_t unchecked = 0;
  std::string unchecked_reason;
  bool operator==(const ScrubPass&) const = default;
};

struct ScrubState {
  ScrubPass last;                   // the last finished pass
  std::optional<ScrubPass> pass;    // the running pass
  uint64_t read_back_sequence = 0;  // commits up to this record were read back or skipped
  std::vector<ScrubDamage> damages;
  uint64_t damages_left_out = 0;  // findings since the last pass began that exceeded the limit
  bool operator==(const ScrubState&) const = default;
};

}  // namespace ckptd
