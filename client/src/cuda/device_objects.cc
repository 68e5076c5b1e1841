#include "client/src/cuda/device_objects.h"

#include <ckpt/ckpt_direct.h>
#include <cuda_runtime.h>

#include <utility>

#include "formats/base/assert.h"

namespace ckpt::lib {

Status PinnedArena::pin(const ArenaPinning::Progress& progress) {
  uint64_t bytes = 0;
  auto* arena = static_cast<std::byte*>(ckpt_arena(session_, &bytes));
  if (arena == nullptr) {
    return make_error(ErrorCode::kFailedPrecondition, "the session has no arena");
  }
  if (!pinned_.empty() && pinned_.back().data() == arena) return ok_status();
  CKPT_ASSIGN(ArenaPinning pinning, ArenaPinning::pin({arena, bytes},
                                                      {.device = options_.device,
                                                       .slab_bytes = ckpt_slab_bytes(session_),
                                                       .part_bytes = options_.part_bytes},
                                                      progress));
  pinned_.push_back(std::move(pinning));
  return ok_status();
}

Result<std::unique_ptr<StagingMemory>> StagingMemory::make(const StagingSize& size) {
  std::unique_ptr<StagingMemory> memory(new StagingMemory);
  CKPT_ASSIGN(memory->tables_, kernels::DeviceArray<std::byte>::make(size.table_bytes));
  CKPT_ASSIGN(memory->host_tables_, kernels::PinnedArray<std::byte>::make(size.table_bytes));
  CKPT_ASSIGN(memory->crc_, kernels::PinnedArray<uint32_t>::make(size.places));
  return memory;
}

StagingMemory::Part StagingMemory::take(const StagingSize& size) {
  CKPT_ASSERT(fits(size));
  const Part part{.host_tables = host_tables_.data() + used_.table_bytes,
                  .tables = tables_.data() + used_.table_bytes,
                  .crc = crc_.data() + used_.places};
  used_.places += size.places;
  used_.table_bytes += size.table_bytes;
  return part;
}

namespace {

// Which kind of memory the byte at `at` is in, and on which device.
Result<cudaPointerAttributes> attributes_of(const void* at) {
  cudaPointerAttributes attributes{};
  attributes.type = cudaMemoryTypeUnregistered;
  if (at == nullptr) return attributes;
  CKPT_TRY(
      kernels::cuda_status(cudaPointerGetAttributes(&attributes, at), "asking where a piece lies"));
  return attributes;
}

}  // namespace

Result<bool> check_reachable(int device, UnitId unit, uint64_t offset, const void* data,
                             uint64_t length) {
  if (length == 0) return false;
  const auto refused = [&](const std::string& what) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: bytes [{}, {}): {}", unit, offset,
                      offset + length, what);
  };
  if (data == nullptr) return refused("data is NULL");
  bool is_device = true;
  // The last byte, too: the allocation may end within the piece.
  for (const uint64_t at : {uint64_t{0}, length - 1}) {
    CKPT_ASSIGN(const cudaPointerAttributes found,
                attributes_of(static_cast<const std::byte*>(data) + at));
    const char* const which = at == 0 ? "data" : "the last byte of data";
    if (found.type == cudaMemoryTypeUnregistered) {
      return refused(
          fmt::format("{} is neither device memory nor pinned; it may have been freed", which));
    }
    if (found.type == cudaMemoryTypeDevice && found.device != device) {
      return refused(fmt::format("{} is memory of device {}, the session's is {}", which,
                                 found.device, device));
    }
    is_device = is_device && found.type == cudaMemoryTypeDevice;
  }
  return is_device;
}

Status session_status(const ckpt_session* session, ckpt_status status) {
  if (status == CKPT_OK) return ok_status();
  return make_error(static_cast<ErrorCode>(status), "{}", ckpt_session_error(session));
}

}  // namespace ckpt::lib
