#include "kernels/cuda/queue.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "kernels/cuda/abandoned.h"
#include "kernels/cuda/backoff.h"

namespace ckpt::kernels {

namespace {

constexpr size_t kStagingBytes = 1u << 20;
constexpr size_t kScratchBytesMin = 1u << 20;
constexpr size_t kAlignment = 256;

// Polls `query` until it returns something other than cudaErrorNotReady, or until the timeout.
// Returns the last result.
template <typename Query>
cudaError_t poll_until_ready(uint32_t timeout_ms, const Query& query) {
  for (Backoff backoff;; backoff.pause()) {
    const cudaError_t state = query();
    if (state != cudaErrorNotReady) return state;
    (void)cudaGetLastError();
    if (backoff.waited() >= std::chrono::milliseconds(timeout_ms)) return state;
  }
}

// True if the process has a context on the device. Only the driver can tell without creating a
// context; if it cannot tell, the answer is true.
bool has_context(int device) {
  using GetState = int (*)(int device, unsigned* flags, int* active);
  constexpr unsigned kSinceVersion = 7000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuDevicePrimaryCtxGetState", &function, kSinceVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return true;
  unsigned flags = 0;
  int active = 1;
  const int asked = reinterpret_cast<GetState>(function)(device, &flags, &active);
  return asked != 0 || active != 0;
}

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Status cuda_status(int error, std::string_view what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // the next call would report it
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

Result<std::string> cuda_bus_id(int device) {
  std::array<char, 64> text{};
  const cudaError_t error =
      cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device);
  CKPT_TRY(cuda_status(error, "asking where the device is"));
  return std::string(text.data());
}

Result<void*> cuda_allocate(size_t bytes) {
  void* at = nullptr;
  CKPT_TRY(cuda_status(cudaMalloc(&at, std::max<size_t>(bytes, 1)),
                       fmt::format("allocating {} bytes", bytes)));
  return at;
}

void cuda_free(void* at) {
  release_when_idle([at] { (void)cudaFree(at); });
}

Result<void*> cuda_allocate_pinned(size_t bytes) {
  void* at = nullptr;
  CKPT_TRY(cuda_status(cudaMallocHost(&at, std::max<size_t>(bytes, 1)),
                       fmt::format("pinning {} bytes", bytes)));
  return at;
}

void cuda_free_pinned(void* at) {
  release_when_idle([at] { (void)cudaFreeHost(at); });
}

// Fills a queue. After a failure, the queue's destructor frees the parts made so far.
struct CudaQueueMaker {
  static Status fill(CudaQueue& queue, const CudaQueueOptions& options) {
    queue.device_ = options.device;
    int count = 0;
    CKPT_TRY(cuda_status(cudaGetDeviceCount(&count), "counting devices"));
    if (options.device < 0 || options.device >= count) {
      return make_error(ErrorCode::kUnavailable, "CUDA: there is no device {} among {}",
                        options.device, count);
    }
    queue.timeout_ms_ = options.timeout_ms;
    const CudaDeviceScope scope(options.device);
    int lowest = 0, highest = 0;
    CKPT_TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities"));
    // Kernels of the lowest priority yield to all others. Without priorities both are 0.
    const int priority = options.priority == CudaPriority::kLow ? lowest : highest;
    CKPT_TRY(
        cuda_status(cudaStreamCreateWithPriority(&queue.stream_, cudaStreamNonBlocking, priority),
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

void choose_cuda_device(int device) {
  if (cudaSetDevice(device) != cudaSuccess)
    (void)cudaGetLastError();  // the next call would report it
}

// Since CUDA 12, cudaSetDevice opens the device's context.
CudaDeviceScope::CudaDeviceScope(int device) : device_(device) {
  if (cudaGetDevice(&before_) != cudaSuccess) (void)cudaGetLastError();
  if (before_ != device_) choose_cuda_device(device_);
}
CudaDeviceScope::~CudaDeviceScope() {
  if (before_ != device_ && has_context(before_)) choose_cuda_device(before_);
}

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

Status wait_until_idle(CudaQueue& queue, uint32_t timeout_ms) {
  (void)queue.take_failure();
  if (!queue.wait_at_most(timeout_ms)) {
    return make_error(ErrorCode::kDeadlineExceeded,
                      "CUDA device {}: queued work is not done after {} ms", queue.device(),
                      timeout_ms);
  }
  const std::optional<std::string> failure = queue.take_failure();
  if (!failure) return {};
  return make_error(ErrorCode::kUnavailable, "CUDA: {}", *failure);
}

Status synchronize(CudaQueue& queue, const std::function<Status()>& check) {
  while (!queue.failed()) {
    const cudaError_t state = cudaStreamQuery(queue.stream());
    if (state == cudaSuccess) break;
    if (state != cudaErrorNotReady) {
      queue.note(state, "queued work");
      break;
    }
    (void)cudaGetLastError();
    CKPT_TRY(check());
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
  CKPT_TRY(synchronize(queue));  // a late device must not write to `to` after this returns
  queue.note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue.stream()),
             "a download");
  return synchronize(queue);
}

// Resources of a queue, freed once the device no longer uses them.
struct CudaQueue::Parts {
  CUstream_st* stream;
  cublasContext* blas;
  void (*stop_blas)(cublasContext*);
  std::vector<void*> memory;
  std::byte* staging;
  std::vector<CUevent_st*> events;

  void release() const {
    if (blas != nullptr) stop_blas(blas);
    for (void* const at : memory) (void)cudaFree(at);
    if (staging != nullptr) (void)cudaFreeHost(staging);
    for (CUevent_st* const event : events) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
};

CudaQueue::~CudaQueue() {
  Parts parts{stream_,    blas_,
              stop_blas_, std::move(old_scratch_),
              staging_,   {std::begin(staging_free_), std::end(staging_free_)}};
  for (void* const at : {blas_workspace_, scratch_}) {
    if (at != nullptr) parts.memory.push_back(at);
  }
  // The last wait timed out: do not wait as long again.
  constexpr uint32_t kAgainMs = 1000;
  const uint32_t timeout_ms = overdue_ ? std::min(timeout_ms_, kAgainMs) : timeout_ms_;
  if (stream_ != nullptr && !wait_at_most(timeout_ms)) {
    abandon(stream_, [parts = std::move(parts)] { parts.release(); });
  } else {
    release_when_idle([parts = std::move(parts)] { parts.release(); });
  }
}

void* CudaQueue::scratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  if (scratch_ != nullptr) old_scratch_.push_back(scratch_);
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  const auto take = [this](size_t wanted) {
    const cudaError_t error = cudaMalloc(&scratch_, wanted);
    if (error == cudaSuccess) {
      scratch_bytes_ = wanted;
    } else {
      scratch_ = nullptr;
    }
    return error;
  };
  // Twice the size, so that growth is rare.
  if (take(aligned(std::max(2 * bytes, kScratchBytesMin))) == cudaSuccess) return scratch_;
  (void)cudaGetLastError();  // the next call would report it
  if (!old_scratch_.empty() && wait_at_most(timeout_ms_)) {
    for (void* const at : std::exchange(old_scratch_, {})) cuda_free(at);
  }
  note(take(aligned(bytes)), "allocating scratch");
  return scratch_;
}

void CudaQueue::upload(void* to, const void* from, size_t bytes) {
  constexpr size_t kPartBytes = kStagingBytes / kStagingParts;
  const auto* rest = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  while (bytes > 0 && !failure_) {
    if (staging_used_ == kPartBytes) {
      note(cudaEventRecord(staging_free_[staging_part_], stream_), "an upload");
      const size_t next = (staging_part_ + 1) % kStagingParts;
      const auto query = [&] { return cudaEventQuery(staging_free_[next]); };
      const cudaError_t state = poll_until_ready(timeout_ms_, query);
      overdue_ = state == cudaErrorNotReady;
      if (overdue_) fail(fmt::format("earlier uploads are not done after {} ms", timeout_ms_));
      note(overdue_ ? cudaSuccess : state, "earlier uploads");
      if (failure_) return;  // the device may still read the next part
      staging_part_ = next;
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
  (void)cudaGetLastError();  // other users of the CUDA runtime would report it
  fail(fmt::format("{}: {}", what, cudaGetErrorString(static_cast<cudaError_t>(error))));
}

void CudaQueue::fail(std::string what) {
  if (!failure_) failure_ = std::move(what);
}

bool CudaQueue::wait_at_most(uint32_t timeout_ms) {
  const cudaError_t state = poll_until_ready(timeout_ms, [&] { return cudaStreamQuery(stream_); });
  overdue_ = state == cudaErrorNotReady;
  if (!overdue_) note(state, "queued work");
  return !overdue_;
}

std::optional<std::string> CudaQueue::wait() {
  if (!wait_at_most(timeout_ms_)) {
    fail(fmt::format("queued work is not done after {} ms", timeout_ms_));
  }
  return take_failure();
}

std::optional<std::string> CudaQueue::take_failure() {
  return std::exchange(failure_, std::nullopt);
}

}  // namespace ckpt::kernels
