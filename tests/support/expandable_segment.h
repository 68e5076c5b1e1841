// ExpandableSegment: device memory from a pool of virtual memory, as PyTorch makes it with
// expandable_segments: one run of addresses, backed by chunks that were made one by one. On a GPU,
// or on the emulated device; needs no link to CUDA's driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "formats/base/result.h"

namespace ckpt::test {

class ExpandableSegment {
 public:
  // Makes at least `bytes` on device 0, in as many chunks as possible. An error names the call.
  static Result<std::unique_ptr<ExpandableSegment>> make(uint64_t bytes);
  ~ExpandableSegment();
  ExpandableSegment(const ExpandableSegment&) = delete;
  ExpandableSegment& operator=(const ExpandableSegment&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(base_); }

 private:
  ExpandableSegment() = default;
  template <typename Function>
  static Status find(const char* name, Function*& function);
  static Status status_of(CUresult result, const char* call);
  Status reserve(uint64_t bytes, const CUmemAllocationProp& properties);
  Status back_by_chunks(const CUmemAllocationProp& properties);

  CUdeviceptr base_ = 0;
  size_t bytes_ = 0;
  size_t chunk_ = 0;
  size_t mapped_ = 0;
};

// The driver's function of this name.
template <typename Function>
Status ExpandableSegment::find(const char* name, Function*& function) {
  constexpr unsigned kSinceVersion = 12000;
  void* at = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &at, kSinceVersion, cudaEnableDefault, &found);
  function = reinterpret_cast<Function*>(at);
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) return ok_status();
  (void)cudaGetLastError();
  return make_error(ErrorCode::kUnavailable, "{}: the driver has no such function", name);
}

inline Status ExpandableSegment::status_of(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return ok_status();
  return make_error(ErrorCode::kUnavailable, "{}: error {}", call, static_cast<int>(result));
}

inline Result<std::unique_ptr<ExpandableSegment>> ExpandableSegment::make(uint64_t bytes) {
  std::unique_ptr<ExpandableSegment> segment(new ExpandableSegment);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CKPT_TRY(segment->reserve(bytes, properties));
  CKPT_TRY(segment->back_by_chunks(properties));
  return segment;
}

inline Status ExpandableSegment::reserve(uint64_t bytes, const CUmemAllocationProp& properties) {
  decltype(cuMemGetAllocationGranularity)* granularity = nullptr;
  CKPT_TRY(find("cuMemGetAllocationGranularity", granularity));
  decltype(cuMemAddressReserve)* reserve_addresses = nullptr;
  CKPT_TRY(find("cuMemAddressReserve", reserve_addresses));
  CKPT_TRY(status_of(granularity(&chunk_, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                     "cuMemGetAllocationGranularity"));
  bytes_ = (bytes + chunk_ - 1) / chunk_ * chunk_;
  return status_of(reserve_addresses(&base_, bytes_, 0, 0, 0), "cuMemAddressReserve");
}

inline Status ExpandableSegment::back_by_chunks(const CUmemAllocationProp& properties) {
  decltype(cuMemCreate)* create = nullptr;
  CKPT_TRY(find("cuMemCreate", create));
  decltype(cuMemMap)* map = nullptr;
  CKPT_TRY(find("cuMemMap", map));
  decltype(cuMemRelease)* release = nullptr;
  CKPT_TRY(find("cuMemRelease", release));
  decltype(cuMemSetAccess)* set_access = nullptr;
  CKPT_TRY(find("cuMemSetAccess", set_access));
  for (; mapped_ < bytes_; mapped_ += chunk_) {
    CUmemGenericAllocationHandle handle{};
    CKPT_TRY(status_of(create(&handle, chunk_, &properties, 0), "cuMemCreate"));
    const CUresult done = map(base_ + mapped_, chunk_, 0, handle, 0);
    CKPT_TRY(status_of(release(handle), "cuMemRelease"));  // the mapping keeps the memory
    CKPT_TRY(status_of(done, "cuMemMap"));
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return status_of(set_access(base_, bytes_, &access, 1), "cuMemSetAccess");
}

inline ExpandableSegment::~ExpandableSegment() {
  if (base_ == 0) return;
  (void)cudaDeviceSynchronize();
  decltype(cuMemUnmap)* unmap = nullptr;
  decltype(cuMemAddressFree)* free_addresses = nullptr;
  if (!find("cuMemUnmap", unmap).ok() || !find("cuMemAddressFree", free_addresses).ok()) return;
  if (mapped_ > 0) (void)unmap(base_, mapped_);
  (void)free_addresses(base_, bytes_);
}

}  // namespace ckpt::test
