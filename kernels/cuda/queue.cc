#include "kernels/cuda/queue.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace ckpt::kernels {

namespace {

constexpr size_t kStagingBytes = 1u << 20;
constexpr size_t kScratchBytesMin = 1u << 20;
constexpr size_t kAlignment = 256;

// How often somebody who waits with a bound asks: CUDA's own waits have none.
constexpr std::chrono::microseconds kAskAgain{5};

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Status cuda_status(int error, std::string_view what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // it would be blamed on the next call
  const auto code =
      error == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable;
  return make_error(code, "CUDA: {}: {}", what,
                    cudaGetErrorString(static_cast<cudaError_t>(error)));
}

int cuda_device_count(std::string* reason) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  if (reason != nullptr) {
    *reason = error == cudaSuccess ? "no CUDA device" : cudaGetErrorString(error);
  }
  return 0;
}

Result<void*> cuda_allocate(size_t bytes) {
  void* at = nullptr;
  CKPT_TRY(cuda_status(cudaMalloc(&at, std::max<size_t>(bytes, 1)),
                       fmt::format("allocating {} bytes", bytes)));
  return at;
}

void cuda_free(void* at) { (void)cudaFree(at); }

Result<void*> cuda_allocate_pinned(size_t bytes) {
  void* at = nullptr;
  CKPT_TRY(cuda_status(cudaMallocHost(&at, std::max<size_t>(bytes, 1)),
                       fmt::format("pinning {} bytes", bytes)));
  return at;
}

void cuda_free_pinned(void* at) { (void)cudaFreeHost(at); }

// Fills a queue; what it has when it fails goes with the queue.
struct CudaQueueMaker {
  static Status fill(CudaQueue& queue, const CudaQueueOptions& options) {
    queue.device_ = options.device;
    int count = 0;
    CKPT_TRY(cuda_status(cudaGetDeviceCount(&count), "counting devices"));
    if (options.device < 0 || options.device >= count) {
      return make_error(ErrorCode::kUnavailable, "CUDA: there is no device {} among {}",
                        options.device, count);
    }
    const CudaDeviceScope scope(options.device);
    CKPT_TRY(cuda_status(cudaStreamCreateWithFlags(&queue.stream_, cudaStreamNonBlocking),
                         "making a stream"));
    CKPT_ASSIGN(void* const staging, cuda_allocate_pinned(kStagingBytes));
    queue.staging_ = static_cast<std::byte*>(staging);
    for (CUevent_st*& event : queue.staging_free_) {
      CKPT_TRY(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event"));
    }
    CKPT_ASSIGN(queue.scratch_, cuda_allocate(kScratchBytesMin));
    queue.scratch_bytes_ = kScratchBytesMin;
    return {};
  }
};

CudaDeviceScope::CudaDeviceScope(int device) {
  (void)cudaGetDevice(&before_);
  (void)cudaSetDevice(device);
}
CudaDeviceScope::~CudaDeviceScope() { (void)cudaSetDevice(before_); }

Result<std::unique_ptr<CudaQueue>> make_cuda_queue(const CudaQueueOptions& options) {
  auto queue = std::make_unique<CudaQueue>();
  CKPT_TRY(CudaQueueMaker::fill(*queue, options));
  return queue;
}

Status synchronize(CudaQueue& queue) {
  const std::optional<std::string> failure = queue.wait();
  if (!failure) return {};
  return make_error(ErrorCode::kIo, "CUDA device {}: {}", queue.device(), *failure);
}

Status come_to_rest(CudaQueue& queue, uint32_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const cudaError_t error = cudaStreamQuery(queue.stream());
    if (error == cudaSuccess) break;
    if (error != cudaErrorNotReady) return cuda_status(error, "asking for what was queued");
    (void)cudaGetLastError();
    if (std::chrono::steady_clock::now() >= deadline) {
      return make_error(ErrorCode::kDeadlineExceeded,
                        "CUDA device {}: not done with what was queued after {} ms", queue.device(),
                        timeout_ms);
    }
    std::this_thread::sleep_for(kAskAgain);
  }
  (void)queue.wait();
  return {};
}

Status synchronize(CudaQueue& queue, const std::function<Status()>& go_on) {
  while (!queue.failed()) {
    const cudaError_t state = cudaStreamQuery(queue.stream());
    if (state == cudaSuccess) break;
    if (state != cudaErrorNotReady) {
      queue.note(state, "what was queued");
      break;
    }
    (void)cudaGetLastError();
    CKPT_TRY(go_on());
  }
  const std::optional<std::string> failure = queue.take_failure();
  if (!failure) return {};
  return make_error(ErrorCode::kIo, "CUDA device {}: {}", queue.device(), *failure);
}

void copy(CudaQueue& queue, void* to, const void* from, size_t bytes) {
  if (queue.failed()) return;
  queue.note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue.stream()), "a copy");
}

void zero(CudaQueue& queue, void* at, size_t bytes) {
  if (queue.failed()) return;
  queue.note(cudaMemsetAsync(at, 0, bytes, queue.stream()), "zeros");
}

Status download(CudaQueue& queue, void* to, const void* from, size_t bytes) {
  queue.note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue.stream()),
             "a download");
  return synchronize(queue);
}

CudaQueue::~CudaQueue() {
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  if (blas_ != nullptr) stop_blas_(blas_);
  if (blas_workspace_ != nullptr) cuda_free(blas_workspace_);
  if (scratch_ != nullptr) cuda_free(scratch_);
  if (staging_ != nullptr) (void)cudaFreeHost(staging_);
  for (CUevent_st* event : staging_free_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

void* CudaQueue::scratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  // cudaFree waits for the device, so nothing that uses the old memory is left behind.
  if (scratch_ != nullptr) cuda_free(scratch_);
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  const size_t wanted = aligned(std::max(2 * bytes, kScratchBytesMin));
  note(cudaMalloc(&scratch_, wanted), "allocating scratch");
  if (scratch_ != nullptr) scratch_bytes_ = wanted;
  return scratch_;
}

void CudaQueue::upload(void* to, const void* from, size_t bytes) {
  constexpr size_t kPartBytes = kStagingBytes / kStagingParts;
  const auto* rest = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  while (bytes > 0 && !failure_) {
    if (staging_used_ == kPartBytes) {
      note(cudaEventRecord(staging_free_[staging_part_], stream_), "an upload");
      staging_part_ = (staging_part_ + 1) % kStagingParts;
      note(cudaEventSynchronize(staging_free_[staging_part_]), "waiting for uploads");
      staging_used_ = 0;
    }
    const size_t now = std::min(bytes, kPartBytes - staging_used_);
    std::byte* place = staging_ + staging_part_ * kPartBytes + staging_used_;
    std::memcpy(place, rest, now);
    note(cudaMemcpyAsync(target, place, now, cudaMemcpyHostToDevice, stream_), "an upload");
    staging_used_ = std::min(aligned(staging_used_ + now), kPartBytes);
    rest += now;
    target += now;
    bytes -= now;
  }
}

void CudaQueue::note(int error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // whoever shares the run time would take it for its own
  fail(fmt::format("{}: {}", what, cudaGetErrorString(static_cast<cudaError_t>(error))));
}

void CudaQueue::fail(std::string what) {
  if (!failure_) failure_ = std::move(what);
}

std::optional<std::string> CudaQueue::wait() {
  note(cudaStreamSynchronize(stream_), "what was queued");
  return take_failure();
}

std::optional<std::string> CudaQueue::take_failure() {
  return std::exchange(failure_, std::nullopt);
}

}  // namespace ckpt::kernels
