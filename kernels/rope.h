// Rotary position embedding in the rotate-half convention of Hugging Face: element i of a head is
// paired with element i + head_dim/2. Su et al., arXiv:2104.09864.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

struct RopeShape {
  int64_t tokens = 0;   // whole sequences; the position of token t is t % seq_len
  int64_t seq_len = 0;  // positions in the table
  int64_t heads = 0;
  int64_t head_dim = 0;  // even
};

// Fills cosine and sine, each [seq_len, head_dim/2], of position * theta^(-2i/head_dim) radians.
void rope_table(int64_t seq_len, int64_t head_dim, double theta, float* cosine, float* sine);

// Rotates x [tokens, heads, head_dim] in place.
void rope_forward(const RopeShape& shape, const float* cosine, const float* sine, float* x);

// The gradient of the input from the gradient of the output, in place: the inverse rotation.
void rope_backward(const RopeShape& shape, const float* cosine, const float* sine, float* dx);

// On a GPU: x and dx are of type Real (float or Bf16), the table is fp32 in device memory. Computes
// in fp32.
template <typename Real>
void rope_forward(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
                  Real* x);
template <typename Real>
void rope_backward(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
                   Real* dx);

}  // namespace ckpt::kernels
