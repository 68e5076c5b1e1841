// Checks on demand that replicas are equal: reads all replicated state once.
#pragma once

#include "trainer/comm/comm.h"
#include "trainer/model/model.h"

namespace moetrain {

// Compares the weights and moments of every expert with several holders, by CRC32C. A collective of
// the group of the store's placement; every rank gets the same answer. kCorrupt names layer, expert
// and ranks of the first that differs:
//   "layers.1.experts.3: its replicas differ: ranks 0, 2 have 1a2b3c4d, rank 5 has 99887766"
Status check_replicas(Comm& comm, Model& model);

}  // namespace moetrain
