// Queues: where kernels run, and in which order. Every kernel takes one first; what is put into one
// queue is done in that order. A queue is used from one thread.
//
// Includes neither CUDA nor what nvcc does not compile (fmt): the .cu files and the code above the
// kernels both read this.
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

// A CUDA stream and what kernels need beside it. Made by make_cuda_queue (kernels/cuda/queue.h).
//
// Kernels return nothing: the first launch that fails is remembered, and said by the next
// synchronize(). Until then nothing more is launched.
//
// CUDA's current device is a thread's own: the thread that uses a queue has made the queue's device
// current (CudaDeviceScope in kernels/cuda/queue.h, or cudaSetDevice).
class CudaQueue {
 public:
  CudaQueue() = default;  // of no use: make_cuda_queue fills it
  // Waits for what is queued, at most the queue's timeout. If it is not done then, everything that
  // the device may still use is left to it (kernels/cuda/abandoned.h).
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  int device() const { return device_; }
  CUstream_st* stream() const { return stream_; }
  // cuBLAS, started by the first call. It and note_blas() are in moe_kernels_cuda alone: a program
  // that moves checkpoints and never multiplies does not link cuBLAS.
  cublasContext* blas();

  // Device memory for kernels' own use, aligned to 256 bytes: at least `bytes`, content undefined.
  // Null, and a failure, if there is no more. The first MiB is there from the start. It grows to
  // twice what is asked for if there is room; what it grows out of stays until the queue goes or
  // memory is short, since CUDA waits for the whole device before it frees.
  // The next call may give the same memory: work queued before it is done with it by then, as the
  // queue is in order.
  void* scratch(size_t bytes);

  // Copies to device memory from host memory, which may change as soon as the call returns. Large
  // ones wait for earlier ones, at most the queue's timeout; then they fail.
  void upload(void* to, const void* from, size_t bytes);

  // Remembers the first failure.
  void fail(std::string what);
  // The same, if `error`, a cudaError_t, is one.
  void note(int error, const char* what);
  // The same for a cublasStatus_t.
  void note_blas(int status, const char* what);
  // The first failure since the last wait(), so far. Does not wait.
  const std::optional<std::string>& failed() const { return failure_; }
  // The same, and forgets it. Does not wait.
  std::optional<std::string> take_failure();
  // Waits until all is done. The first failure since the last call, if there was one; one is that
  // it is not done within the queue's timeout.
  std::optional<std::string> wait();
  // Waits at most so long. False if it is not done then; a failure of the device counts as done,
  // and is remembered.
  bool wait_at_most(uint32_t timeout_ms);

 private:
  friend struct CudaQueueMaker;
  struct Parts;

  int device_ = 0;
  uint32_t timeout_ms_ = 0;
  bool overdue_ = false;  // the last wait has ended without an end of the work
  CUstream_st* stream_ = nullptr;
  cublasContext* blas_ = nullptr;
  void (*stop_blas_)(cublasContext*) = nullptr;  // set with it
  void* blas_workspace_ = nullptr;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  std::vector<void*> old_scratch_;  // each half as large as the next, or smaller
  // What upload() copies from: a ring of pinned parts. A part is used again when the copies out of
  // it are done, which waits for them and not for what was queued since.
  static constexpr size_t kStagingParts = 8;
  std::byte* staging_ = nullptr;
  CUevent_st* staging_free_[kStagingParts] = {};
  size_t staging_part_ = 0;
  size_t staging_used_ = 0;  // of the part
  std::optional<std::string> failure_;
};

}  // namespace ckpt::kernels
