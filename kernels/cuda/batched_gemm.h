// Many matrix products at once through cuBLAS: a batch of one shape, or groups of any shapes.
// Unlike cuBLAS, everything here is row-major.
#pragma once

#include <cublas_v2.h>

#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/cuda/product_calls.h"
#include "kernels/queue.h"

namespace ckpt::kernels {

// Layout of a factor in memory: elements from one row to the next, and whether the product uses
// the factor transposed.
struct Factor {
  int64_t stride = 0;
  bool transposed = false;
};

// c[rows, columns] = alpha * a[rows, inner] b[inner, columns] + beta * c, with the shapes after
// transposing. Sums are in fp32, and with fp32 factors nothing is rounded to TF32. With
// beta 0, c is not read. No size is zero.
struct Product {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  Factor a;
  Factor b;
  int64_t c_stride = 0;
  float alpha = 1.0f;
  float beta = 0.0f;
};

// Element types of both factors, and of c.
struct ProductTypes {
  cudaDataType_t factors = CUDA_R_32F;
  cudaDataType_t result = CUDA_R_32F;
};
template <typename Real, typename Result = Real>
constexpr ProductTypes product_types() {
  return {std::is_same_v<Real, Bf16> ? CUDA_R_16BF : CUDA_R_32F,
          std::is_same_v<Result, Bf16> ? CUDA_R_16BF : CUDA_R_32F};
}

// A product and its matrices on the device.
struct PlacedProduct {
  Product product;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};

// cuBLAS reads arrays of pointers only on the device, so it cannot check their alignment: with
// bf16 factors such calls fault unless all matrices start at multiples of this.
inline constexpr uintptr_t kMatrixAlignment = 16;
inline bool needs_alignment(const ProductTypes& types) { return types.factors != CUDA_R_32F; }

// One product; any alignment.
void multiply(CudaQueue& queue, const char* name, const ProductTypes& types,
              const PlacedProduct& placed);

// `count` products of one shape. a, b, c: arrays of `count` pointers, all on the device. The
// matrices must be aligned if needs_alignment().
void multiply_batch(CudaQueue& queue, const char* name, const ProductTypes& types,
                    const Product& product, int64_t count, void* const* a, void* const* b,
                    void* const* c);

// Products of any shapes, all of one type; no c overlaps another. pointers: memory on the device
// for 3 * products.size(). kGrouped: one call of cuBLAS, or one per product if not aligned.
void multiply_groups(CudaQueue& queue, const char* name, cudaDataType_t type,
                     std::span<const PlacedProduct> products, void** pointers,
                     ProductCalls calls = ProductCalls::kByShape);

}  // namespace ckpt::kernels
