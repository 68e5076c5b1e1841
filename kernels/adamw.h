// One AdamW update of one tensor: torch.optim.AdamW, in fp32.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/queue.h"

namespace ckpt::kernels {

struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;           // added to the root, after bias correction
  double weight_decay = 0;     // decoupled: scales with the learning rate, not with the gradient
  double gradient_factor = 1;  // clipping; multiplies the gradient first
  uint64_t step = 1;           // number of this update, from 1; bias correction is 1 - beta^step
};

// Updates value, m and v (each `count` long) from grad, which is unchanged. Works element by
// element, without sums: any split of a tensor gives the same bits.
void adamw_update(const AdamWStep& step, int64_t count, const float* grad, float* value, float* m,
                  float* v);

// Same on a GPU; gives the same bits as the CPU, wherever a tensor is cut. Unless `compute` is
// null, also writes the new values as bf16 to compute [count], for matrix products.
void adamw_update(CudaQueue& queue, const AdamWStep& step, int64_t count, const float* grad,
                  float* value, float* m, float* v, Bf16* compute = nullptr);

}  // namespace ckpt::kernels
