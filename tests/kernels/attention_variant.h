// The attention case on a GPU. Inputs: q, k, v.
#pragma once

#include "kernels/attention.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {

std::vector<CudaVariant> attention_variants(const AttentionShape& shape);

}  // namespace ckpt::kernels
