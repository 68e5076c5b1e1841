// The dense cases of dense_cases.cc on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"
#include "kernels/rope.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {

std::vector<CudaVariant> linear_on_gpu(const LinearShape& shape, Write write);
std::vector<CudaVariant> rope_on_gpu(const RopeShape& shape, const std::vector<float>& cosine,
                                     const std::vector<float>& sine);
std::vector<CudaVariant> embedding_on_gpu(int64_t width, int64_t vocab,
                                          const std::vector<int32_t>& tokens);
std::vector<CudaVariant> cross_entropy_on_gpu(const CrossEntropyShape& shape,
                                              const std::vector<int32_t>& targets);

}  // namespace ckpt::kernels
