// Conversion between fp32 and bf16, element by element.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/queue.h"

namespace ckpt::kernels {

// to[i] = from[i] for `count` elements; `to` and `from` may not overlap. To bf16, rounds to
// nearest, ties to even, as to_bf16(); to fp32, the conversion is exact.
void cast(int64_t count, const float* from, Bf16* to);
void cast(int64_t count, const Bf16* from, float* to);

void cast(CudaQueue& queue, int64_t count, const float* from, Bf16* to);
void cast(CudaQueue& queue, int64_t count, const Bf16* from, float* to);

}  // namespace ckpt::kernels
