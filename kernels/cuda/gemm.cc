#include "kernels/cuda/gemm.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "formats/base/assert.h"
#include "kernels/cuda/cublas_int.h"

namespace ckpt::kernels {
namespace {

template <typename Real>
constexpr cudaDataType_t kDataType = std::is_same_v<Real, Bf16> ? CUDA_R_16BF : CUDA_R_32F;

// Pedantic: no setting from outside may turn fp32 products into TF32 ones.
template <typename Real>
constexpr cublasComputeType_t kComputeType =
    std::is_same_v<Real, Bf16> ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_PEDANTIC;

template <typename Real>
cublasOperation_t operation_of(const DeviceMatrix<Real>& matrix) {
  return matrix.transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

// To cuBLAS, a row-major A is a column-major A^T. So cuBLAS computes c^T = b^T a^T, for which every
// operand already has the layout that cuBLAS expects.
template <typename Real, typename Out>
void gemm(CudaQueue& queue, const GemmShape& shape, float alpha, const DeviceMatrix<Real>& a,
          const DeviceMatrix<Real>& b, float beta, Out* c, int64_t c_stride) {
  if (shape.rows == 0 || shape.columns == 0 || queue.failed()) return;
  CKPT_ASSERT(beta == 0 || beta == 1);
  if (shape.inner == 0) {  // cuBLAS does not document this case
    if (beta == 1) return;
    const auto row_bytes = static_cast<size_t>(shape.columns) * sizeof(Out);
    for (int64_t row = 0; row < shape.rows; ++row) {
      queue.note(cudaMemsetAsync(c + row * c_stride, 0, row_bytes, queue.stream()), "gemm");
    }
    return;
  }
  queue.note_blas(
      cublasGemmEx(queue.blas(), operation_of(b), operation_of(a), cublas_int(shape.columns),
                   cublas_int(shape.rows), cublas_int(shape.inner), &alpha, b.data, kDataType<Real>,
                   cublas_int(b.stride), a.data, kDataType<Real>, cublas_int(a.stride), &beta, c,
                   kDataType<Out>, cublas_int(c_stride), kComputeType<Real>, CUBLAS_GEMM_DEFAULT),
      "gemm");
}

template void gemm<float, float>(CudaQueue&, const GemmShape&, float, const DeviceMatrix<float>&,
                                 const DeviceMatrix<float>&, float, float*, int64_t);
template void gemm<Bf16, Bf16>(CudaQueue&, const GemmShape&, float, const DeviceMatrix<Bf16>&,
                               const DeviceMatrix<Bf16>&, float, Bf16*, int64_t);
template void gemm<Bf16, float>(CudaQueue&, const GemmShape&, float, const DeviceMatrix<Bf16>&,
                                const DeviceMatrix<Bf16>&, float, float*, int64_t);

}  // namespace ckpt::kernels
