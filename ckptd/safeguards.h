// Safeguards that tests leave out, one at a time, to see the simulation find what follows from it.
//
// ckptd has all of them: its left_out() says false, and no option, file, message or variable can
// make it say anything else. The one other definition belongs to the simulation's program, which
// links it in the place of this one (tests/simulation/left_out.cc).
#pragma once

#include <cstdint>

namespace ckptd {

enum class Safeguard : uint8_t {
  kSegmentSync,     // a commit syncs the segments that it touched
  kCommitOrder,     // its record goes out when that sync is done, not before
  kPayloadCrc,      // a restore compares what it read with the journal's CRC32C
  kExtentPlace,     // a header must be the one that belongs there, not just a whole one
  kTombstoneFirst,  // space is given back when its tombstone is durable, not before
  kSameBytes,       // what has the CRC32C of bytes on the disk is compared with them
  kHeldVersions,    // no prune lets go of what an open snapshot refers to
  kRefusedAgain,    // a journal write that found no space is written over by the next
  kUnreadStays,     // what a start could not read is not damaged
};

bool left_out(Safeguard safeguard);

}  // namespace ckptd
