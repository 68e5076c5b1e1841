// Sums of experts' gradients, and their rounding.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/model/parameter.h"

namespace moetrain {

// to[to_begin + i] += from[from_begin + i], for `count` elements; both of the device's grad_sum().
void add_gradients(Tensor& to, uint64_t to_begin, const Tensor& from, uint64_t from_begin,
                   uint64_t count);

// Rounds every `grad_sum` into `grad`. Does nothing where the device adds up in `grad` itself.
void round_sums(std::span<OwnedRange> owned);

}  // namespace moetrain
