// Token embedding: a row of the table per token.
#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace ckpt::kernels {

// out[i] = table[tokens[i]]; table: [vocab, width], out: [count, width]. Tokens are in range.
void embedding_forward(int64_t count, int64_t width, const int32_t* tokens, const float* table,
                       float* out);

// Adds dout[i] to dtable[tokens[i]]. In double: see linear_backward_weight().
void embedding_backward(int64_t count, int64_t width, const int32_t* tokens, const float* dout,
                        double* dtable);

// On a GPU: all fp32, and fewer than 2^31 tokens. Memory that is written overlaps nothing else.
void embedding_forward(CudaQueue& queue, int64_t count, int64_t width, const int32_t* tokens,
                       const float* table, float* out);
// Adds to dtable [vocab, width] the sum of each token's rows, in a fixed order.
void embedding_backward(CudaQueue& queue, int64_t count, int64_t width, int64_t vocab,
                        const int32_t* tokens, const float* dout, float* dtable);

}  // namespace ckpt::kernels
