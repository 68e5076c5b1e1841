// Arrays of pointers in device memory, for calls of cuBLAS that read them there.
#pragma once

#include <span>

#include "kernels/queue.h"

namespace ckpt::kernels {

// Writes `pointers` (host memory, which may change as soon as the call returns) to `to` in device
// memory. Passes them as arguments of kernels: there is no copy to wait for.
void write_pointers(CudaQueue& queue, const char* name, std::span<const void* const> pointers,
                    void** to);

}  // namespace ckpt::kernels
