// Opens the stager: queues, memory and the size of chunks. Chooses which runs are direct.
#include <cuda_runtime.h>

#include <algorithm>

#include "client/src/cuda/link_speed.h"
#include "client/src/cuda/stager.h"

namespace ckpt::lib {

namespace {

// A run of 1 MiB is copied in 20 us at 55 GB/s, and the copy engine needs 1 or 2 us between two
// copies: shorter runs would cost the link more than packing them costs the device. If a fast link
// makes chunks longer, runs must be longer, too: a chunk holds at most 16 of them.
constexpr uint64_t kDirectBytesMin = 1ull << 20;
constexpr uint64_t kDirectRunsPerChunk = 16;

}  // namespace

Result<std::unique_ptr<Stager>> Stager::open(ckpt_session* session, PinnedArena& arena,
                                             const Options& options) {
  const uint64_t chunk_bytes =
      options.chunk_bytes != 0 ? options.chunk_bytes : chunk_bytes_for(0, options.gather_bytes);
  if (chunk_bytes < 2 * kBlockBytes || chunk_bytes % kBlockBytes != 0 ||
      options.gather_bytes / chunk_bytes < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a gather buffer of {} bytes in chunks of {}: at least two chunks of whole"
                      " {} byte blocks are needed",
                      options.gather_bytes, chunk_bytes, kBlockBytes);
  }
  std::unique_ptr<Stager> stager(new Stager(session, arena, options));
  CKPT_TRY(stager->prepare());
  return stager;
}

Status Stager::prepare() {
  const kernels::CudaQueueOptions queue{.device = options_.device,
                                        .priority = kernels::CudaPriority::kLow,
                                        .timeout_ms = options_.timeout_ms};
  CKPT_ASSIGN(gather_, kernels::make_cuda_queue(queue));
  CKPT_ASSIGN(drain_, kernels::make_cuda_queue(queue));
  CKPT_TRY(arena_.pin());
  CKPT_ASSIGN(buffer_, kernels::DeviceArray<std::byte>::make(options_.gather_bytes));
  CKPT_TRY(choose_chunk_bytes());
  drains_.emplace(events_, options_.gather_bytes / chunk_bytes_);
  kernels::preload_pack();
  return begun_.make();
}

// Uses the given size, or derives it from the speed of the link.
Status Stager::choose_chunk_bytes() {
  chunk_bytes_ = options_.chunk_bytes;
  if (chunk_bytes_ != 0) return ok_status();
  uint64_t arena_bytes = 0;
  const auto* arena = static_cast<const std::byte*>(ckpt_arena(session_, &arena_bytes));
  CKPT_ASSIGN(const double bytes_per_second,
              measure_link(*gather_, buffer_.data(), buffer_.size(), {arena, arena_bytes}));
  chunk_bytes_ = chunk_bytes_for(bytes_per_second, options_.gather_bytes);
  return ok_status();
}

DirectRule Stager::direct_rule(std::span<const ckpt_cuda_piece> pieces) const {
  uint64_t bytes = 0;
  for (const ckpt_cuda_piece& piece : pieces) bytes += piece.length;
  const uint64_t gathered = drains_->slots() * chunk_bytes_;
  const uint64_t usual = std::max(kDirectBytesMin, chunk_bytes_ / kDirectRunsPerChunk);
  const uint64_t run_bytes_min = options_.direct_bytes != 0 ? options_.direct_bytes : usual;
  if (bytes <= gathered || run_bytes_min > chunk_bytes_) return {};
  return {.run_bytes_min = run_bytes_min, .until = bytes - gathered};
}

}  // namespace ckpt::lib
