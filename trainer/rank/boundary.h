// Boundary: values that the ranks of a group agree on at a step boundary, before the step. Pure.
//
// Each rank states its own Boundary. The group's is the maximum of each value, so that every rank
// acts on the same one: a flag is set for all if it is set for any rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moetrain {

struct Boundary {
  bool stop = false;           // asked to stop
  bool daemon_absent = false;  // ckptd does not answer
  // The newest step whose snapshot a rank could not contribute to; 0: none.
  uint64_t failed_snapshot = 0;
  // The newest step whose snapshot failed after all ranks had contributed to it; 0: none.
  uint64_t lost_snapshot = 0;
  bool drain = false;    // asked to leave
  bool joiners = false;  // other processes wait to join
  bool retake = false;   // a snapshot failed because ckptd did not answer
  bool operator==(const Boundary&) const = default;
};

// Converts a boundary to values whose maximum over all ranks is the agreed boundary, and back.
std::vector<int64_t> to_values(const Boundary& boundary);
Boundary boundary_from(std::span<const int64_t> values);

}  // namespace moetrain
