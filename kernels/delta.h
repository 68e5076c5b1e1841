// delta: what changed since the last saved copy, as an XOR; the same again undoes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

// to[i] = a[i] ^ b[i] for `bytes` bytes. `to` may be a or b (or both), but may not overlap them
// otherwise. No alignment is needed; where the three are equally far from a multiple of 16 bytes it
// is fast on a GPU.
void delta(int64_t bytes, const std::byte* a, const std::byte* b, std::byte* to);

void delta(CudaQueue& queue, int64_t bytes, const std::byte* a, const std::byte* b, std::byte* to);

}  // namespace ckpt::kernels
