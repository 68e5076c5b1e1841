// StateCrc: computes the CRC32C of a model's state on its GPU, without a copy. Run beside a step,
// it uses multiprocessors and device memory like a snapshot, but neither the link to the host nor
// the arena's pages.
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

// Used from one thread. The pieces, in memory of `device`, must outlive it.
class StateCrc {
 public:
  static Result<std::unique_ptr<StateCrc>> make(std::span<const ckpt_cuda_piece> pieces,
                                                int device);

  // Queues one pass over all pieces, with the lowest priority, behind the stream's work so far.
  // `blocks_max`: thread blocks that run at a time; 0: as many as fill the device.
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
