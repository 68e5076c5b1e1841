// Speed of the link between host and device, and the chunk size that the stager derives from it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {

// Measures a copy from pinned memory to the device in bytes per second; the other direction is
// about as fast. Takes some milliseconds and overwrites device memory, at most the smaller of both
// sizes.
Result<double> measure_link(kernels::CudaQueue& queue, std::byte* device, uint64_t device_bytes,
                            ByteView pinned);

// Chunk size of the stager: 16 MiB, since a copy of the trainer waits for one chunk (0.3 ms at 55
// GB/s). The copy engine is idle for some microseconds between two chunks. So on a link that moves
// a chunk in less than 150 us, the size is doubled until it takes that long; at most a quarter of
// the gather buffer.
uint64_t chunk_bytes_for(double bytes_per_second, uint64_t gather_bytes);

}  // namespace ckpt::lib
