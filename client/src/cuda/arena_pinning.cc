#include "client/src/cuda/arena_pinning.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "client/src/cuda/numa.h"
#include "client/src/deadline.h"
#include "formats/base/parse.h"
#include "kernels/cuda/abandoned.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {

Result<ArenaPinning::Part> ArenaPinning::Part::pin(MutableByteView bytes) {
  CKPT_TRY(kernels::cuda_status(
      cudaHostRegister(bytes.data(), bytes.size(), cudaHostRegisterPortable), "cudaHostRegister"));
  Part part;
  part.bytes_ = bytes;
  return part;
}

ArenaPinning::Part::~Part() {
  if (bytes_.empty()) return;
  kernels::release_when_idle([at = bytes_.data()] { (void)cudaHostUnregister(at); });
}

Result<ArenaPinning> ArenaPinning::pin(MutableByteView arena, const Options& options,
                                       const Progress& progress) {
  ArenaPinning pinning(arena);
  const uint64_t step = std::max<uint64_t>(options.slab_bytes, 1);
  pinning.part_bytes_ = std::max<uint64_t>(options.part_bytes / step, 1) * step;
  const Clock::time_point begin = Clock::now();
  pinning.choose_node(options.device);
  CKPT_TRY(pinning.pin_parts(progress));
  pinning.stats_.ns = ns_since(begin);
  return pinning;
}

// If the node is unknown or refused, the arena is pinned anyway.
void ArenaPinning::choose_node(int device) {
  const Result<std::string> address = kernels::cuda_bus_id(device);
  if (!address.ok()) return;
  stats_.numa_node = numa_node_of_pci_device(*address);
  stats_.is_near = stats_.numa_node >= 0 && prefer_numa_node(arena_, stats_.numa_node);
}

Status ArenaPinning::pin_parts(const Progress& progress) {
  const uint64_t count = (arena_.size() + part_bytes_ - 1) / part_bytes_;
  parts_.reserve(count);
  if (progress) progress(0, arena_.size());
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bytes = std::min<uint64_t>(part_bytes_, arena_.size() - stats_.bytes);
    Result<Part> part = Part::pin(arena_.subspan(stats_.bytes, bytes));
    if (!part.ok()) {
      return make_error(part.error().code,
                        "pinning the arena: part {} of {} ({}), {} of {} pinned so far: {}; free "
                        "memory of the host or ask for a smaller arena",
                        i + 1, count, base::format_size(bytes), base::format_size(stats_.bytes),
                        base::format_size(arena_.size()), part.error().message);
    }
    parts_.push_back(std::move(part).value());
    stats_.bytes += bytes;
    if (progress) progress(stats_.bytes, arena_.size());
  }
  return ok_status();
}

bool ArenaPinning::begins_part(const void* at) const {
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(at) - arena_.data());
  return offset < arena_.size() && offset % part_bytes_ == 0;
}

}  // namespace ckpt::lib
