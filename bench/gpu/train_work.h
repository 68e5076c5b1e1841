// What a training step computes, at least. Pure.
#pragma once

#include <cstdint>

#include "trainer/model/config.h"

namespace bench::gpu {

// Floating-point operations of the matrix products of a step over so many tokens: 2 for each weight
// that a token meets, experts counted top_k times, and the products of attention over what a token
// may see; three times that, as backward has two products for each of forward's. What is computed
// beside products is not counted, nor what a causal mask throws away.
double step_flops(const moetrain::ModelConfig& config, uint64_t tokens);

}  // namespace bench::gpu
