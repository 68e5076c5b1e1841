// cuBLAS of a queue. Separate from queue.cc, so that only programs that multiply link cuBLAS.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

// Workspace size that cuBLAS recommends for Hopper. Each queue has its own workspace, so that its
// results do not depend on concurrent work of other streams.
constexpr size_t kBlasWorkspaceBytes = 32u << 20;

cublasContext* CudaQueue::blas() {
  if (blas_ != nullptr) return blas_;
  note_blas(cublasCreate(&blas_), "starting cuBLAS");
  if (blas_ == nullptr) return nullptr;  // the failure is noted; products check for null
  stop_blas_ = [](cublasContext* blas) { (void)cublasDestroy(blas); };
  note_blas(cublasSetStream(blas_, stream_), "giving cuBLAS its stream");
  // Sums stay fp32 to the end, even if cuBLAS splits a product along the sum and returns bf16.
  note_blas(cublasSetMathMode(blas_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
            "setting cuBLAS's precision");
  note(cudaMalloc(&blas_workspace_, kBlasWorkspaceBytes), "allocating cuBLAS's workspace");
  if (blas_workspace_ != nullptr) {
    note_blas(cublasSetWorkspace(blas_, blas_workspace_, kBlasWorkspaceBytes),
              "giving cuBLAS its workspace");
  }
  return blas_;
}

void CudaQueue::note_blas(int status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS || failure_) return;
  failure_ =
      fmt::format("{}: {}", what, cublasGetStatusString(static_cast<cublasStatus_t>(status)));
}

}  // namespace ckpt::kernels
