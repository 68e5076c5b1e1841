// Queues: where and in which order kernels run. Every kernel takes a queue as first argument; work
// of one queue is done in order. A queue is used from one thread.
//
// Includes neither CUDA nor headers that nvcc cannot compile (fmt): the .cu files and the code
// above the kernels both include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct CUevent_st;
struct CUstream_st;
struct cublasContext;

namespace ckpt::kernels {

// The calling thread: a kernel is done when the call returns.
struct CpuQueue {};

// A CUDA stream and the resources of kernels. Made by make_cuda_queue (kernels/cuda/queue.h).
//
// Kernels return nothing: the queue remembers the first failed launch, and the next synchronize()
// returns that failure. Until then nothing more is launched.
//
// CUDA's current device is per thread: the thread that uses a queue has made the queue's device
// current (CudaDeviceScope in kernels/cuda/queue.h, or cudaSetDevice).
class CudaQueue {
 public:
  CudaQueue() = default;  // unusable until make_cuda_queue fills it
  // Waits for queued work, at most the queue's timeout. If work is unfinished then, all memory that
  // the device may still use is abandoned, not freed (kernels/cuda/abandoned.h).
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  int device() const { return device_; }
  CUstream_st* stream() const { return stream_; }
  // cuBLAS handle, created by the first call. This and note_blas() are only in moe_kernels_cuda: a
  // program that moves checkpoints and never multiplies does not link cuBLAS.
  cublasContext* blas();

  // Device memory for kernels' own use, aligned to 256 bytes: at least `bytes`, content undefined.
  // Null, and a failure, if memory is full. The first MiB exists from the start. Growth is to twice
  // the requested size if there is room. Outgrown memory stays until the queue ends or memory is
  // short, since CUDA waits for the whole device before it frees.
  // The next call may return the same memory: earlier queued work is done with it by then, as the
  // queue is in order.
  void* scratch(size_t bytes);

  // Copies to device memory from host memory, which may change as soon as the call returns. Large
  // copies wait for earlier ones, at most the queue's timeout; then they fail.
  void upload(void* to, const void* from, size_t bytes);

  // Remembers the first failure.
  void fail(std::string what);
  // Same, if `error`, a cudaError_t, is a failure.
  void note(int error, const char* what);
  // Same, for a cublasStatus_t.
  void note_blas(int status, const char* what);
  // The first failure since the last wait(), so far. Does not wait.
  const std::optional<std::string>& failed() const { return failure_; }
  // Same, and forgets the failure. Does not wait.
  std::optional<std::string> take_failure();
  // Waits until all work is done. Returns the first failure since the last call, if any. Exceeding
  // the queue's timeout is a failure too.
  std::optional<std::string> wait();
  // Waits at most timeout_ms. False if work is unfinished then; a device failure counts as finished
  // and is remembered.
  bool wait_at_most(uint32_t timeout_ms);

 private:
  friend struct CudaQueueMaker;
  struct Parts;

  int device_ = 0;
  uint32_t timeout_ms_ = 0;
  bool overdue_ = false;  // the last wait timed out with work unfinished
  CUstream_st* stream_ = nullptr;
  cublasContext* blas_ = nullptr;
  void (*stop_blas_)(cublasContext*) = nullptr;  // set together with blas_
  void* blas_workspace_ = nullptr;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  std::vector<void*> old_scratch_;  // each at most half as large as the next
  // Source memory of upload(): a ring of pinned parts. A part is reused when the copies out of the
  // part are done; that does not wait for work queued since.
  static constexpr size_t kStagingParts = 8;
  std::byte* staging_ = nullptr;
  CUevent_st* staging_free_[kStagingParts] = {};
  size_t staging_part_ = 0;
  size_t staging_used_ = 0;  // bytes of the current part
  std::optional<std::string> failure_;
};

}  // namespace ckpt::kernels
