// The experts of one rank over the rows that were sent to them: for each expert
//   y = ( silu(x w1^T) * (x w3^T) ) w2^T      (SwiGLU; Shazeer, arXiv:2002.05202)
// Rows are in expert order: those of the first expert first, then the second's. No padding; an
// expert with no rows costs nothing.
#pragma once

#include <cstdint>
#include <span>

namespace ckpt::kernels {

// One expert's weights and where its gradients are added. Shapes as in PyTorch's linear layers.
struct ExpertGroup {
  int64_t rows = 0;
  const float* w1 = nullptr;  // [intermediate, hidden]
  const float* w2 = nullptr;  // [hidden, intermediate]
  const float* w3 = nullptr;  // [intermediate, hidden]
  float* dw1 = nullptr;       // backward only: added to
  float* dw2 = nullptr;
  float* dw3 = nullptr;
};

struct ExpertShape {
  int64_t hidden = 0;
  int64_t intermediate = 0;
};

// What forward leaves for backward, each [rows of all groups, intermediate].
struct ExpertActivations {
  float* gate = nullptr;   // x w1^T
  float* up = nullptr;     // x w3^T
  float* inner = nullptr;  // silu(gate) * up
};

// x, y: [rows of all groups, hidden].
void expert_gemm_forward(const ExpertShape& shape, std::span<const ExpertGroup> groups,
                         const float* x, const ExpertActivations& activations, float* y);

// dx [rows of all groups, hidden], replaced; may not overlap dy. The activations are used up: their
// memory holds gradients afterwards.
void expert_gemm_backward(const ExpertShape& shape, std::span<const ExpertGroup> groups,
                          const float* dy, const float* x, const ExpertActivations& activations,
                          float* dx);

}  // namespace ckpt::kernels
