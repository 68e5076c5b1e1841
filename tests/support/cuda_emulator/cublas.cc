#include <cblas.h>
#include <cublas_v2.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "tests/support/cuda_emulator/emulator.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

struct Operand {
  const void* data;
  cudaDataType_t type;
  int leading;
  cublasOperation_t operation = CUBLAS_OP_N;
};

struct Shape {
  int m, n, k;
};

float widen(const uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }

// Rounds to nearest, ties to even. NaN stays NaN.
uint16_t narrow(float value) {
  const uint32_t bits = __float_as_uint(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The matrix as rows x columns of floats, column-major and dense.
std::vector<float> load(const Operand& from, int rows, int columns) {
  std::vector<float> dense(static_cast<size_t>(rows) * columns);
  for (int column = 0; column < columns; ++column) {
    for (int row = 0; row < rows; ++row) {
      const size_t at = static_cast<size_t>(column) * from.leading + row;
      dense[static_cast<size_t>(column) * rows + row] =
          from.type == CUDA_R_32F ? static_cast<const float*>(from.data)[at]
                                  : widen(static_cast<const uint16_t*>(from.data)[at]);
    }
  }
  return dense;
}

void multiply(const Shape& shape, float alpha, const Operand& a, const Operand& b, float beta,
              const Operand& c) {
  const auto [m, n, k] = shape;
  if (m == 0 || n == 0) return;
  const bool turn_a = a.operation == CUBLAS_OP_T;
  const bool turn_b = b.operation == CUBLAS_OP_T;
  const std::vector<float> dense_a = load(a, turn_a ? k : m, turn_a ? m : k);
  const std::vector<float> dense_b = load(b, turn_b ? n : k, turn_b ? k : n);
  std::vector<float> result(static_cast<size_t>(m) * n, 0.0f);
  if (beta != 0) result = load(c, m, n);
  if (k > 0) {
    cblas_sgemm(CblasColMajor, turn_a ? CblasTrans : CblasNoTrans,
                turn_b ? CblasTrans : CblasNoTrans, m, n, k, alpha, dense_a.data(), turn_a ? k : m,
                dense_b.data(), turn_b ? n : k, beta, result.data(), m);
  }
  void* out = const_cast<void*>(c.data);
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      const size_t at = static_cast<size_t>(column) * c.leading + row;
      const float value = result[static_cast<size_t>(column) * m + row];
      if (c.type == CUDA_R_32F) {
        static_cast<float*>(out)[at] = value;
      } else {
        static_cast<uint16_t*>(out)[at] = narrow(value);
      }
    }
  }
}

// bf16 matrices of a batch must be aligned: cuBLAS chooses how to read them without having seen the
// pointers. A GPU reports "misaligned address" otherwise, and cannot be used any more.
void check_alignment(cudaDataType_t type, int k, std::initializer_list<const void*> matrices) {
  if (type == CUDA_R_32F) return;
  const uintptr_t alignment = k % 8 == 0 ? 16 : k % 2 == 0 ? 4 : 1;
  for (const void* at : matrices) {
    if (reinterpret_cast<uintptr_t>(at) % alignment == 0) continue;
    std::fprintf(stderr, "cublas: a matrix of a batch is misaligned\n");
    std::abort();
  }
}

float scalar(const void* at) { return *static_cast<const float*>(at); }

}  // namespace

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "invalid value";
}
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  if (m < 0 || n < 0 || k < 0 || ldc < std::max(m, 1)) return CUBLAS_STATUS_INVALID_VALUE;
  if (lda < std::max(transa == CUBLAS_OP_N ? m : k, 1)) return CUBLAS_STATUS_INVALID_VALUE;
  if (ldb < std::max(transb == CUBLAS_OP_N ? k : n, 1)) return CUBLAS_STATUS_INVALID_VALUE;
  cuda_emulator::enqueue(handle->stream, [=, alpha = scalar(alpha), beta = scalar(beta)] {
    multiply({m, n, k}, alpha, {a, a_type, lda, transa}, {b, b_type, ldb, transb}, beta,
             {c, c_type, ldc});
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void* alpha,
                                   const void* const a[], cudaDataType a_type, int lda,
                                   const void* const b[], cudaDataType b_type, int ldb,
                                   const void* beta, void* const c[], cudaDataType c_type, int ldc,
                                   int batch_count, cublasComputeType_t, cublasGemmAlgo_t) {
  if (m < 0 || n < 0 || k < 0 || batch_count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  cuda_emulator::enqueue(handle->stream, [=, alpha = scalar(alpha), beta = scalar(beta)] {
    for (int i = 0; i < batch_count; ++i) {
      check_alignment(a_type, k, {a[i], b[i], c[i]});
      multiply({m, n, k}, alpha, {a[i], a_type, lda, transa}, {b[i], b_type, ldb, transb}, beta,
               {c[i], c_type, ldc});
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t transa[], const cublasOperation_t transb[],
    const int m[], const int n[], const int k[], const void* alpha, const void* const a[],
    cudaDataType_t a_type, const int lda[], const void* const b[], cudaDataType_t b_type,
    const int ldb[], const void* beta, void* const c[], cudaDataType_t c_type, const int ldc[],
    int group_count, const int group_size[], cublasComputeType_t) {
  // cuBLAS requires one type for all matrices.
  if (a_type != b_type || a_type != c_type) return CUBLAS_STATUS_INVALID_VALUE;
  int first = 0;
  for (int group = 0; group < group_count; ++group) {
    const float scale = static_cast<const float*>(alpha)[group];
    const float keep = static_cast<const float*>(beta)[group];
    const Shape shape{m[group], n[group], k[group]};
    const Operand of_a{nullptr, a_type, lda[group], transa[group]};
    const Operand of_b{nullptr, b_type, ldb[group], transb[group]};
    const Operand of_c{nullptr, c_type, ldc[group]};
    const int end = first + group_size[group];
    cuda_emulator::enqueue(handle->stream, [=] {
      for (int i = first; i < end; ++i) {
        check_alignment(of_a.type, shape.k, {a[i], b[i], c[i]});
        multiply(shape, scale, {a[i], of_a.type, of_a.leading, of_a.operation},
                 {b[i], of_b.type, of_b.leading, of_b.operation}, keep,
                 {c[i], of_c.type, of_c.leading, of_c.operation});
      }
    });
    first = end;
  }
  return CUBLAS_STATUS_SUCCESS;
}
