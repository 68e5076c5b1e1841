// Lower bound of the floating-point operations of a training step. Pure.
#pragma once

#include <cstdint>

#include "trainer/model/config.h"

namespace bench::gpu {

// Floating-point operations of the matrix products of a step over `tokens` tokens: 2 per weight
// that a token uses (experts count top_k times), plus the products of attention over the positions
// that a token may see. Three times that, because backward has two products per product of
// forward. Work besides products, and products that the causal mask discards, are not counted.
double step_flops(const moetrain::ModelConfig& config, uint64_t tokens);

}  // namespace bench::gpu
