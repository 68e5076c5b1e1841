// The gradients of replicas: every holder of an expert has added up the tokens that came to it, and
// all need the sum.
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
#include <vector>

#include "trainer/model/model.h"
#include "trainer/parallel/comm.h"

namespace moetrain {

// Gives every expert of this rank its grad: the sum over all holders. A collective of the group of
// the store's placement. After a failure the gradients are undefined and the step must not be
// applied.
Status reduce_expert_gradients(Comm& comm, Model& model);

// One piece of one expert's gradient: elements [begin, end) of w1, w2 and w3 in a row.
struct GradientPiece {
  size_t expert = 0;  // position in ExpertStore::owned()
  uint64_t begin = 0;
  uint64_t end = 0;
};

// What `rank` and `peer` exchange: the pieces of all experts that both hold, in the order of
// owned(), of which `adder` (one of the two) adds up. Pure; both ranks get pieces of the same sizes
// in the same order. Empty for a rank and itself. `elements`: of one expert.
std::vector<GradientPiece> shared_pieces(const ExpertPlacement& placement, uint32_t rank,
                                         uint32_t peer, uint32_t adder, uint64_t elements);

}  // namespace moetrain
