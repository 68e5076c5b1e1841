// Small copies to the host that bypass the copy engines.
//
// A device has one engine for each direction. The engine does one copy after the other, without
// priorities: an urgent copy of a few bytes would wait until the current chunk of a snapshot has
// crossed the link, 0.3 ms for 16 MiB. Stores of a kernel use the link at the same time.
#pragma once

#include <cstddef>

#include "kernels/queue.h"

namespace ckpt::kernels {

// Largest copy for land(): the engine does larger ones, without occupying multiprocessors.
inline constexpr size_t kLandBytesMax = 256u << 10;

// `to` is pinned memory (kernels/cuda/array.h) and disjoint from `from`; both are aligned to 16
// bytes. The bytes are in `to` once the queue has completed this copy.
void land(CudaQueue& queue, void* to, const void* from, size_t bytes);

}  // namespace ckpt::kernels
