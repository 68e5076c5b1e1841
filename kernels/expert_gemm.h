// The experts of one rank, applied to the rows routed to them: for each expert
//   y = ( silu(x w1^T) * (x w3^T) ) w2^T      (SwiGLU; Shazeer, arXiv:2002.05202)
// Rows are in expert order: rows of the first expert, then rows of the second, ... No padding; an
// expert with no rows costs nothing.
//
// On a CPU, the result of a row does not depend on the other rows of its expert (row_gemm.h), and
// gradients of weights are summed in double. So an expert's rows may lie on any ranks, in any
// parts; the code that sums the parts rounds at the end.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/product_calls.h"
#include "kernels/queue.h"

namespace ckpt::kernels {

// Weights of one expert and the targets of its gradients. Shapes as in PyTorch's linear layers.
struct ExpertGroup {
  int64_t rows = 0;
  const float* w1 = nullptr;  // [intermediate, hidden]
  const float* w2 = nullptr;  // [hidden, intermediate]
  const float* w3 = nullptr;  // [intermediate, hidden]
  double* dw1 = nullptr;      // backward only: added to
  double* dw2 = nullptr;
  double* dw3 = nullptr;
};

struct ExpertShape {
  int64_t hidden = 0;
  int64_t intermediate = 0;
};

// Activations saved by forward for backward, each [rows of all groups, intermediate].
struct ExpertActivations {
  float* gate = nullptr;   // x w1^T
  float* up = nullptr;     // x w3^T
  float* inner = nullptr;  // silu(gate) * up
};

// x, y: [rows of all groups, hidden].
void expert_gemm_forward(const ExpertShape& shape, std::span<const ExpertGroup> groups,
                         const float* x, const ExpertActivations& activations, float* y);

// dx [rows of all groups, hidden], replaced; may not overlap dy. The activations are overwritten:
// their memory holds gradients afterwards.
void expert_gemm_backward(const ExpertShape& shape, std::span<const ExpertGroup> groups,
                          const float* dy, const float* x, const ExpertActivations& activations,
                          float* dx);

// On a GPU: the groups are in host memory and point to device memory. Weights and activations have
// type Real (float or Bf16), SwiGLU computes in fp32, gradients of weights are fp32. All else as
// above. An expert without rows may have null pointers.
//
// `calls` selects cuBLAS calls for the experts' products (weight gradients are always single). With
// Bf16, a grouped call needs hidden and intermediate to be multiples of 8, and arrays that start at
// multiples of 16 bytes; other products use single calls.
template <typename Real>
struct CudaExpertGroup {
  int64_t rows = 0;
  const Real* w1 = nullptr;
  const Real* w2 = nullptr;
  const Real* w3 = nullptr;
  float* dw1 = nullptr;
  float* dw2 = nullptr;
  float* dw3 = nullptr;
};
template <typename Real>
struct CudaExpertActivations {
  Real* gate = nullptr;
  Real* up = nullptr;
  Real* inner = nullptr;
};
template <typename Real>
void expert_gemm_forward(CudaQueue& queue, const ExpertShape& shape,
                         std::span<const CudaExpertGroup<Real>> groups, const Real* x,
                         const CudaExpertActivations<Real>& activations, Real* y,
                         ProductCalls calls = ProductCalls::kByShape);
template <typename Real>
void expert_gemm_backward(CudaQueue& queue, const ExpertShape& shape,
                          std::span<const CudaExpertGroup<Real>> groups, const Real* dy,
                          const Real* x, const CudaExpertActivations<Real>& activations, Real* dx,
                          ProductCalls calls = ProductCalls::kByShape);

}  // namespace ckpt::kernels
