// Time that policies take to plan, from 16 to 1,024 ranks.
#pragma once

#include <nlohmann/json.hpp>

#include "formats/base/result.h"
#include "trainer/placement/policy.h"

namespace bench {

// Milliseconds of processor time that this thread has used: machines are shared.
double thread_cpu_ms();

// Loads of `layers` layers that are Zipf with exponents 0.5 to 1.375, experts shuffled; seeded.
std::vector<std::vector<uint64_t>> zipf_loads(uint32_t layers, uint32_t experts, uint64_t tokens,
                                              uint32_t seed);

// One entry for each shape and policy: {ranks, experts, layers, slots_per_rank, policy, cpu_ms,
// cpu_ms_per_layer, max_over_mean, limit_ms, limit_name, verdict}.
ckpt::Result<nlohmann::json> planning_times(uint32_t slots_per_rank);

}  // namespace bench
