// Safeguards that tests can disable one at a time, to prove that the simulation detects the effect.
//
// ckptd always has all of them: its left_out() returns false, and no option, file, message or
// variable can change that. Only the simulation's program links another definition in its place
// (tests/simulation/left_out.cc).
#pragma once

#include <cstdint>

namespace ckptd {

enum class Safeguard : uint8_t {
  kSegmentSync,     // a commit syncs the segments that it touched
  kCommitOrder,     // its record is appended after that sync
  kPayloadCrc,      // a restore compares its bytes with the journal's CRC32C
  kExtentPlace,     // a header must belong to this place, not just be valid
  kTombstoneFirst,  // space is reclaimed only after its tombstone is durable
  kComparedBytes,   // bytes with an equal CRC32C are compared before dedup
  kHeldVersions,    // no prune removes versions that an open snapshot references
  kRefusedAgain,    // the next write overwrites a journal write without space
  kUnreadStays,     // data that a startup could not read is not damaged
};

bool left_out(Safeguard safeguard);

}  // namespace ckptd
