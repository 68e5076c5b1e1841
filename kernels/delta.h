// delta: XOR with the last saved copy. Applied a second time, it restores the original.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

// to[i] = a[i] ^ b[i] for `bytes` bytes. `to` may be a or b (or both), but may not overlap them
// otherwise. Any alignment; fast on a GPU if all three are equally far from a multiple of 16 bytes.
void delta(int64_t bytes, const std::byte* a, const std::byte* b, std::byte* to);

void delta(CudaQueue& queue, int64_t bytes, const std::byte* a, const std::byte* b, std::byte* to);

}  // namespace ckpt::kernels
