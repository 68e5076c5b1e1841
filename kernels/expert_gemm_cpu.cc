#include <cmath>
#include <vector>

#include "kernels/expert_gemm.h"
#include "kernels/row_gemm.h"

namespace ckpt::kernels {
namespace {

// y[rows, out] = x[rows, in] w[out, in]^T, and the gradient of x.
void forward(const LinearShape& shape, const float* x, const float* w, float* y,
             std::vector<float>& room) {
  row_gemm({shape.rows, shape.out, shape.in}, {x, shape.in}, {w, shape.in, Transpose::kYes},
           Write::kReplace, y, shape.out, room);
}
void backward_input(const LinearShape& shape, const float* dy, const float* w, Write write,
                    float* dx, std::vector<float>& room) {
  row_gemm({shape.rows, shape.in, shape.out}, {dy, shape.out}, {w, shape.in}, write, dx, shape.in,
           room);
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

void swiglu(int64_t count, const float* gate, const float* up, float* inner) {
  for (int64_t i = 0; i < count; ++i) inner[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

// Replaces gate and up by their gradients. dinner is the gradient of inner.
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
  std::vector<float> room;
  int64_t row = 0;
  for (const ExpertGroup& group : groups) {
    if (group.rows == 0) continue;
    const float* in = x + row * shape.hidden;
    float* gate = activations.gate + row * shape.intermediate;
    float* up = activations.up + row * shape.intermediate;
    float* inner = activations.inner + row * shape.intermediate;
    const LinearShape widen{group.rows, shape.hidden, shape.intermediate};
    const LinearShape narrow{group.rows, shape.intermediate, shape.hidden};
    forward(widen, in, group.w1, gate, room);
    forward(widen, in, group.w3, up, room);
    swiglu(group.rows * shape.intermediate, gate, up, inner);
    forward(narrow, inner, group.w2, y + row * shape.hidden, room);
    row += group.rows;
  }
}

void expert_gemm_backward(const ExpertShape& shape, std::span<const ExpertGroup> groups,
                          const float* dy, const float* x, const ExpertActivations& activations,
                          float* dx) {
  const auto [hidden, intermediate] = shape;
  std::vector<float> room;
  std::vector<double> wide, thin;  // fp32 values, widened for add_weight_gradient()
  int64_t row = 0;
  for (const ExpertGroup& group : groups) {
    if (group.rows == 0) continue;
    const float* in = x + row * hidden;
    const float* dout = dy + row * hidden;
    float* din = dx + row * hidden;
    float* gate = activations.gate + row * intermediate;
    float* up = activations.up + row * intermediate;
    float* inner = activations.inner + row * intermediate;
    const int64_t widened = group.rows * intermediate;
    const LinearShape widen{group.rows, hidden, intermediate};
    const LinearShape narrow{group.rows, intermediate, hidden};
    thin.assign(dout, dout + group.rows * hidden);
    wide.assign(inner, inner + widened);
    add_weight_gradient(group.rows, hidden, intermediate, thin.data(), wide.data(), group.dw2);
    // inner now holds its own gradient
    backward_input(narrow, dout, group.w2, Write::kReplace, inner, room);
    swiglu_backward(widened, inner, gate, up);
    thin.assign(in, in + group.rows * hidden);
    wide.assign(gate, gate + widened);
    add_weight_gradient(group.rows, intermediate, hidden, wide.data(), thin.data(), group.dw1);
    wide.assign(up, up + widened);
    add_weight_gradient(group.rows, intermediate, hidden, wide.data(), thin.data(), group.dw3);
    backward_input(widen, gate, group.w1, Write::kReplace, din, room);
    backward_input(widen, up, group.w3, Write::kAdd, din, room);
    row += group.rows;
  }
}

}  // namespace ckpt::kernels
