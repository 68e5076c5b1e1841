// Token embedding: a row of the table per token.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

// out[i] = table[tokens[i]]; table: [vocab, width], out: [count, width]. Tokens are in range.
void embedding_forward(int64_t count, int64_t width, const int32_t* tokens, const float* table,
                       float* out);

// Adds dout[i] to dtable[tokens[i]]. In double: see linear_backward_weight().
void embedding_backward(int64_t count, int64_t width, const int32_t* tokens, const float* dout,
                        double* dtable);

}  // namespace ckpt::kernels
