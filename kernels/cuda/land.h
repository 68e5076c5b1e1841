// Small copies to the host, past the copy engines.
//
// A device has one engine for each direction, which does one copy after the other and knows no
// priorities: a few bytes that are wanted at once wait there until the chunk of a snapshot that is
// under way has crossed, 0.3 ms for 16 MiB. What a kernel stores goes over the link beside it.
#pragma once

#include <cstddef>

#include "kernels/queue.h"

namespace ckpt::kernels {

// What land() is for: more is left to the engine, which takes no multiprocessors.
inline constexpr size_t kLandBytesMax = 256u << 10;

// `to` is pinned memory (kernels/cuda/array.h) and apart from `from`; both are aligned to 16 bytes.
// The bytes are there when the queue has come so far.
void land(CudaQueue& queue, void* to, const void* from, size_t bytes);

}  // namespace ckpt::kernels
