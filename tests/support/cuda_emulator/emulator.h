// Between the parts of the emulator.
#pragma once

#include <cuda_runtime.h>

namespace cuda_emulator {

// Runs every thread of every block; the caller holds nothing.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

}  // namespace cuda_emulator
