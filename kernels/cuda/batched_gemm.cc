#include "kernels/cuda/batched_gemm.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/cublas_int.h"
#include "kernels/cuda/pointers.h"

namespace ckpt::kernels {
namespace {

cublasOperation_t operation(const Factor& factor) {
  return factor.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

cublasComputeType_t compute_type(cudaDataType_t factors) {
  return factors == CUDA_R_32F ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
}

bool aligned(const void* at) { return reinterpret_cast<uintptr_t>(at) % kMatrixAlignment == 0; }

bool can_be_grouped(const ProductTypes& types, std::span<const PlacedProduct> products) {
  return !needs_alignment(types) ||
         std::all_of(products.begin(), products.end(), [](const PlacedProduct& p) {
           return aligned(p.a) && aligned(p.b) && aligned(p.c);
         });
}

bool call_one_by_one(std::span<const PlacedProduct> products, ProductCalls calls) {
  if (calls != ProductCalls::kByShape) return calls == ProductCalls::kOneByOne;
  double multiplications = 0;
  for (const auto& [p, a, b, c] : products) {
    multiplications +=
        static_cast<double>(p.rows) * static_cast<double>(p.columns) * static_cast<double>(p.inner);
  }
  return are_faster_one_by_one(static_cast<int64_t>(products.size()), multiplications);
}

// All products in one cuBLAS call, each a group. The order of a and b is explained below.
void multiply_grouped(CudaQueue& queue, const char* name, cudaDataType_t type,
                      std::span<const PlacedProduct> products, void** pointers) {
  const size_t count = products.size();
  std::vector<const void*> matrices(3 * count);  // all b, all a, all c
  std::vector<cublasOperation_t> operation_a, operation_b;
  std::vector<int> rows, columns, inner, stride_a, stride_b, stride_c;
  std::vector<float> alpha, beta;
  for (size_t i = 0; i < count; ++i) {
    const Product& p = products[i].product;
    matrices[i] = products[i].b;
    matrices[count + i] = products[i].a;
    matrices[2 * count + i] = products[i].c;
    operation_a.push_back(operation(p.a));
    operation_b.push_back(operation(p.b));
    rows.push_back(cublas_int(p.rows));
    columns.push_back(cublas_int(p.columns));
    inner.push_back(cublas_int(p.inner));
    stride_a.push_back(cublas_int(p.a.stride));
    stride_b.push_back(cublas_int(p.b.stride));
    stride_c.push_back(cublas_int(p.c_stride));
    alpha.push_back(p.alpha);
    beta.push_back(p.beta);
  }
  const std::vector<int> ones(count, 1);
  write_pointers(queue, name, matrices, pointers);
  if (queue.failed()) return;  // the device has the pointers of an earlier call, or none
  queue.note_blas(cublasGemmGroupedBatchedEx(
                      queue.blas(), operation_b.data(), operation_a.data(), columns.data(),
                      rows.data(), inner.data(), alpha.data(), pointers, type, stride_b.data(),
                      pointers + count, type, stride_a.data(), beta.data(), pointers + 2 * count,
                      type, stride_c.data(), cublas_int(count), ones.data(), compute_type(type)),
                  name);
}

}  // namespace

// To cuBLAS, a row-major matrix is a transposed column-major one. c^T = b^T a^T: so b comes first,
// and rows and columns are swapped.

void multiply(CudaQueue& queue, const char* name, const ProductTypes& types,
              const PlacedProduct& placed) {
  if (queue.failed()) return;
  const Product& p = placed.product;
  queue.note_blas(
      cublasGemmEx(queue.blas(), operation(p.b), operation(p.a), cublas_int(p.columns),
                   cublas_int(p.rows), cublas_int(p.inner), &p.alpha, placed.b, types.factors,
                   cublas_int(p.b.stride), placed.a, types.factors, cublas_int(p.a.stride), &p.beta,
                   placed.c, types.result, cublas_int(p.c_stride), compute_type(types.factors),
                   CUBLAS_GEMM_DEFAULT),
      name);
}

void multiply_batch(CudaQueue& queue, const char* name, const ProductTypes& types, const Product& p,
                    int64_t count, void* const* a, void* const* b, void* const* c) {
  if (queue.failed()) return;
  queue.note_blas(
      cublasGemmBatchedEx(queue.blas(), operation(p.b), operation(p.a), cublas_int(p.columns),
                          cublas_int(p.rows), cublas_int(p.inner), &p.alpha, b, types.factors,
                          cublas_int(p.b.stride), a, types.factors, cublas_int(p.a.stride), &p.beta,
                          c, types.result, cublas_int(p.c_stride), cublas_int(count),
                          compute_type(types.factors), CUBLAS_GEMM_DEFAULT),
      name);
}

void multiply_groups(CudaQueue& queue, const char* name, cudaDataType_t type,
                     std::span<const PlacedProduct> products, void** pointers, ProductCalls calls) {
  if (products.empty() || queue.failed()) return;
  const ProductTypes types{type, type};
  if (can_be_grouped(types, products) && !call_one_by_one(products, calls)) {
    return multiply_grouped(queue, name, type, products, pointers);
  }
  for (const PlacedProduct& placed : products) multiply(queue, name, types, placed);
}

}  // namespace ckpt::kernels
