// Allocation: how many replicas every expert of a layer gets. Lazarus, Eq. 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;

// Experts in ascending order of load t_e (tokens; ties by number) get
//   r_e = max( floor( t_e / sum of t from e on * slots not given yet ), replicas_min ),
// in integers; where no load is left, slots are shared evenly. The counts sum to `slots`.
// kInvalidArgument if slots < experts * replicas_min, without experts, or with replicas_min 0.
Result<std::vector<uint32_t>> allocate_replicas(std::span<const uint64_t> loads, uint32_t slots,
                                                uint32_t replicas_min);

}  // namespace moetrain
