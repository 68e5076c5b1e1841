// How fast the link between host and device is, and what the stager makes of that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {

// Bytes per second of a copy from pinned memory to the device, which is about as fast as one back.
// Some milliseconds; overwrites the device's memory, at most as many bytes as there are of both.
Result<double> measure_link(kernels::CudaQueue& queue, std::byte* device, uint64_t device_bytes,
                            ByteView pinned);

// How much the stager drains at a time: 16 MiB, since whatever the trainer copies meanwhile waits
// for one chunk (0.3 ms at 55 GB/s). Between two chunks the copy engine stands still for some
// microseconds. So on a link that moves a chunk in less than 150 us it is twice as much, or more;
// at most a quarter of the gather buffer.
uint64_t chunk_bytes_for(double bytes_per_second, uint64_t gather_bytes);

}  // namespace ckpt::lib
