// StateCrc: the CRC32C of a model's state on its GPU, and no copy of it. Beside a step it costs
// what a snapshot takes of the multiprocessors and of the device's memory, and nothing of the link
// to the host or of the arena's pages.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ckpt/ckpt_cuda.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/event.h"
#include "kernels/pack.h"

namespace bench::gpu {

using ckpt::Result;
using ckpt::Status;

// Used from one thread. The pieces, memory of `device`, outlive it.
class StateCrc {
 public:
  static Result<std::unique_ptr<StateCrc>> make(std::span<const ckpt_cuda_piece> pieces,
                                                int device);

  // Queues one pass over all pieces, of the lowest priority, behind what the stream has so far.
  // `blocks_max`: of threads, that run at a time; 0: as many as fill the device.
  Status begin(CUstream_st* stream, unsigned blocks_max);
  // Waits until the pass is done.
  Status finish() { return synchronize(*queue_); }
  // The CRCs of the last pass, one for each piece. Waits for the pass.
  Result<std::vector<uint32_t>> crc();

 private:
  StateCrc() = default;

  std::unique_ptr<ckpt::kernels::CudaQueue> queue_;
  ckpt::kernels::CudaEvent begun_;
  ckpt::kernels::PlannedPack planned_;
  ckpt::kernels::DeviceArray<std::byte> tables_;
  ckpt::kernels::DeviceArray<uint32_t> crc_;
};

}  // namespace bench::gpu
