// Moves rows between token order and expert order, and combines the experts' results.
//
// A token has top_k assignments. `position[token, k]` is the row of assignment (token, k) in expert
// order. The map is one-to-one onto [0, tokens * top_k).
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

struct PermuteShape {
  int64_t tokens = 0;
  int64_t top_k = 0;
  int64_t width = 0;
};

// rows[position[t, k]] = x[t]: every token's row is copied to each of its assignments.
// x: [tokens, width]; rows: [tokens * top_k, width].
void permute_forward(const PermuteShape& shape, const float* x, const int64_t* position,
                     float* rows);

// Adds the rows' gradients to dx [tokens, width], k ascending.
void permute_backward(const PermuteShape& shape, const float* drows, const int64_t* position,
                      float* dx);

// Adds sum_k weight[t, k] * rows[position[t, k]] to out [tokens, width], k ascending: the order of
// the sum does not depend on the placement of the experts.
void unpermute_forward(const PermuteShape& shape, const float* rows, const int64_t* position,
                       const float* weight, float* out);

// drows [tokens * top_k, width] and dweight [tokens, top_k], both replaced. drows may be the same
// memory as rows.
void unpermute_backward(const PermuteShape& shape, const float* dout, const float* rows,
                        const int64_t* position, const float* weight, float* drows, float* dweight);

// to[i] = from[source[i]] for `count` rows; `to` and `from` may not overlap.
void gather_rows(int64_t count, int64_t width, const int64_t* source, const float* from, float* to);

// to[target[i]] = from[i] for `count` rows: the reverse of gather_rows.
void scatter_rows(int64_t count, int64_t width, const int64_t* target, const float* from,
                  float* to);

// On a GPU: rows, and inputs that become rows, have type Real (float or Bf16). The residual stream,
// its gradient and the weights are fp32. Positions are in device memory.
template <typename Real>
void permute_forward(CudaQueue& queue, const PermuteShape& shape, const Real* x,
                     const int64_t* position, Real* rows);
template <typename Real>
void permute_backward(CudaQueue& queue, const PermuteShape& shape, const Real* drows,
                      const int64_t* position, float* dx);
template <typename Real>
void unpermute_forward(CudaQueue& queue, const PermuteShape& shape, const Real* rows,
                       const int64_t* position, const float* weight, float* out);
template <typename Real>
void unpermute_backward(CudaQueue& queue, const PermuteShape& shape, const float* dout,
                        const Real* rows, const int64_t* position, const float* weight, Real* drows,
                        float* dweight);
template <typename Real>
void gather_rows(CudaQueue& queue, int64_t count, int64_t width, const int64_t* source,
                 const Real* from, Real* to);
template <typename Real>
void scatter_rows(CudaQueue& queue, int64_t count, int64_t width, const int64_t* target,
                  const Real* from, Real* to);

}  // namespace ckpt::kernels
