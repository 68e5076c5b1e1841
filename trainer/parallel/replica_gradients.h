// Sums the gradients of replicas: every holder of an expert has added up its own tokens, and all
// holders need the sum.
//
// Two all-to-alls a step, whatever the number of experts: an expert's gradient (w1, w2, w3, one
// after the other) is cut into as many equal pieces as it has holders; each holder is sent its
// piece by all others, adds them to its own in ascending order of rank, and sends the sum back. A
// rank sends (r - 1) / r of a gradient there and as much back for each of its experts with r > 1
// holders, and nothing for others. All holders receive, or keep, the bits of the same sum: so
// replicas that were alike stay alike.
//
// On the host, pieces are sent in double and the sum is rounded to fp32 once, before it is sent
// back: which holders computed which tokens hardly ever changes a bit. On a GPU both ways are fp32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/parameter.h"

namespace moetrain {

// Gives every expert of this rank its `grad`: the sum over all holders. `owned`: the experts that
// the placement gives to this rank, ascending, with their sums. A collective of the placement's
// group; returns the bytes received from other ranks. After a failure the gradients are undefined
// and the step must not be applied.
Result<uint64_t> reduce_replica_gradients(Comm& comm, Device& device,
                                          const ComputePlacement& placement,
                                          std::span<OwnedRange> owned);

// One piece of one expert's gradient: elements [begin, end) of w1, w2 and w3 in a row.
struct GradientPiece {
  size_t expert = 0;  // position in ExpertStore::owned()
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Exchange between `rank` and `peer`: the pieces of all experts that both hold, in the order of
// owned(), of which `adder` (one of the two) adds up. Pure; both ranks get pieces of the same sizes
// in the same order. Empty for a rank and itself. `elements`: of one expert.
std::vector<GradientPiece> shared_pieces(const ComputePlacement& placement, uint32_t rank,
                                         uint32_t peer, uint32_t adder, uint64_t elements);

}  // namespace moetrain
