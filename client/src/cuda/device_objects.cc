#include "client/src/cuda/device_objects.h"

namespace ckpt::lib {

Status cuda_check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return ok_status();
  (void)cudaGetLastError();  // it would be blamed on the next call
  const auto code =
      error == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable;
  return make_error(code, "CUDA: {}: {}", what, cudaGetErrorString(error));
}

Result<bool> Event::happened() const {
  const cudaError_t error = cudaEventQuery(handle_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  CKPT_TRY(cuda_check(error, "asking for an event"));
  return true;
}

Result<PinnedRange> PinnedRange::pin(MutableByteView bytes) {
  CKPT_TRY(cuda_check(cudaHostRegister(bytes.data(), bytes.size(), cudaHostRegisterPortable),
                      "pinning the arena"));
  PinnedRange range;
  range.bytes_ = bytes;
  return range;
}

Result<std::unique_ptr<StagingMemory>> StagingMemory::make(size_t chunks, size_t places) {
  std::unique_ptr<StagingMemory> memory(new StagingMemory);
  CKPT_ASSIGN(memory->crc, kernels::DeviceArray<uint32_t>::make(places));
  void* host = nullptr;
  CKPT_TRY(cuda_check(cudaMallocHost(&host, places * sizeof(uint32_t)), "pinning memory for CRCs"));
  memory->host_crc = static_cast<uint32_t*>(host);
  for (auto* events : {&memory->gathered, &memory->drained}) {
    for (size_t i = 0; i < chunks; ++i) CKPT_TRY(events->emplace_back().make());
  }
  return memory;
}

}  // namespace ckpt::lib
