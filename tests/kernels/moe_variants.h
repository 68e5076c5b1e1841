// The cases of moe_cases.cc on a GPU, with the inputs and outputs that they have there.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/expert_gemm.h"
#include "kernels/gate_topk.h"
#include "kernels/permute.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {

std::vector<CudaVariant> gate_variants(const GateShape& shape);
std::vector<CudaVariant> permute_variants(const PermuteShape& shape,
                                          const std::vector<int64_t>& position);
std::vector<CudaVariant> unpermute_variants(const PermuteShape& shape,
                                            const std::vector<int64_t>& position);
// rows: per expert.
std::vector<CudaVariant> expert_variants(const ExpertShape& shape,
                                         const std::vector<int64_t>& rows);

}  // namespace ckpt::kernels
