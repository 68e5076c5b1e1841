#include <cmath>

#include "kernels/blas.h"
#include "kernels/expert_gemm.h"
#include "kernels/linear.h"

namespace ckpt::kernels {
namespace {

// dw += dy^T x, over all rows at once: an expert's rows lie together on one rank, in the order of
// the global batch, whatever the number of ranks.
void add_weight_gradient(const LinearShape& shape, const float* dy, const float* x, float* dw) {
  gemm({shape.out, shape.in, shape.rows}, 1.0f, {dy, shape.out, Transpose::kYes}, {x, shape.in},
       1.0f, dw, shape.in);
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

void swiglu(int64_t count, const float* gate, const float* up, float* inner) {
  for (int64_t i = 0; i < count; ++i) inner[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

// gate and up become their gradients. dinner is read once per element, before inner is of use
// again.
void swiglu_backward(int64_t count, const float* dinner, float* gate, float* up) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gate[i];
    const float s = sigmoid(g);
    const float silu = g * s;
    const float u = up[i];
    up[i] = dinner[i] * silu;
    gate[i] = dinner[i] * u * (s + silu * (1.0f - s));
  }
}

}  // namespace

void expert_gemm_forward(const ExpertShape& shape, std::span<const ExpertGroup> groups,
                         const float* x, const ExpertActivations& activations, float* y) {
  int64_t row = 0;
  for (const ExpertGroup& group : groups) {
    const float* in = x + row * shape.hidden;
    float* gate = activations.gate + row * shape.intermediate;
    float* up = activations.up + row * shape.intermediate;
    float* inner = activations.inner + row * shape.intermediate;
    const LinearShape widen{group.rows, shape.hidden, shape.intermediate};
    const LinearShape narrow{group.rows, shape.intermediate, shape.hidden};
    linear_forward(widen, in, group.w1, gate);
    linear_forward(widen, in, group.w3, up);
    swiglu(group.rows * shape.intermediate, gate, up, inner);
    linear_forward(narrow, inner, group.w2, y + row * shape.hidden);
    row += group.rows;
  }
}

void expert_gemm_backward(const ExpertShape& shape, std::span<const ExpertGroup> groups,
                          const float* dy, const float* x, const ExpertActivations& activations,
                          float* dx) {
  int64_t row = 0;
  for (const ExpertGroup& group : groups) {
    const float* in = x + row * shape.hidden;
    const float* dout = dy + row * shape.hidden;
    float* din = dx + row * shape.hidden;
    float* gate = activations.gate + row * shape.intermediate;
    float* up = activations.up + row * shape.intermediate;
    float* inner = activations.inner + row * shape.intermediate;
    const LinearShape widen{group.rows, shape.hidden, shape.intermediate};
    const LinearShape narrow{group.rows, shape.intermediate, shape.hidden};
    add_weight_gradient(narrow, dout, inner, group.dw2);
    linear_backward_input(narrow, dout, group.w2, inner);  // inner now holds its own gradient
    swiglu_backward(group.rows * shape.intermediate, inner, gate, up);
    add_weight_gradient(widen, gate, in, group.dw1);
    add_weight_gradient(widen, up, in, group.dw3);
    linear_backward_input(widen, gate, group.w1, din);
    linear_backward_input(widen, up, group.w3, din, Write::kAdd);
    row += group.rows;
  }
}

}  // namespace ckpt::kernels
