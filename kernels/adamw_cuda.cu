#include "kernels/adamw.h"
#include "kernels/adamw_factors.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"

namespace ckpt::kernels {
namespace {

// Operations are never fused, so that packs, single elements and the CPU give the same bits.
__device__ inline void update(const AdamWFactors& f, float grad, float& value, float& m, float& v) {
  const float g = __fmul_rn(f.gradient, grad);
  m = __fadd_rn(m, __fmul_rn(f.new1, __fsub_rn(g, m)));
  v = __fadd_rn(__fmul_rn(f.beta2, v), __fmul_rn(__fmul_rn(f.new2, g), g));
  const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(v), f.root_scale), f.eps);
  value = __fsub_rn(__fmul_rn(f.decay, value), __fdiv_rn(__fmul_rn(f.rate, m), root));
}

template <int kWidth, bool kCompute>
__device__ inline void update_pack(const AdamWFactors& f, int64_t at, const float* grad,
                                   float* value, float* m, float* v, Bf16* compute) {
  const auto new_grad = load_packed<kWidth>(grad + at);
  auto new_value = load_packed<kWidth>(value + at);
  auto new_m = load_packed<kWidth>(m + at);
  auto new_v = load_packed<kWidth>(v + at);
  Packed<Bf16, kWidth> narrow;
  for (int j = 0; j < kWidth; ++j) {
    update(f, new_grad.values[j], new_value.values[j], new_m.values[j], new_v.values[j]);
    if constexpr (kCompute) narrow.values[j] = to_bf16(new_value.values[j]);
  }
  store_packed(value + at, new_value);
  store_packed(m + at, new_m);
  store_packed(v + at, new_v);
  if constexpr (kCompute) store_packed(compute + at, narrow);
}

// Four blocks per multiprocessor: with this bound nvcc spills no register around the divisions.
template <int kWidth, bool kCompute>
__global__ void __launch_bounds__(kBlockThreads, 4)
    update_kernel(AdamWFactors f, int64_t count, const float* grad, float* value, float* m,
                  float* v, Bf16* compute) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t packs = count / kWidth;
  for (int64_t pack = first; pack < packs; pack += step) {
    update_pack<kWidth, kCompute>(f, pack * kWidth, grad, value, m, v, compute);
  }
  for (int64_t i = packs * kWidth + first; i < count; i += step) {
    update_pack<1, kCompute>(f, i, grad, value, m, v, compute);
  }
}

}  // namespace

void adamw_update(CudaQueue& queue, const AdamWStep& step, int64_t count, const float* grad,
                  float* value, float* m, float* v, Bf16* compute) {
  constexpr int kWidth = kPackCount<float>;
  const bool packs = packable(kWidth, kWidth, grad, value, m, v, compute);
  const auto kernel =
      packs ? (compute == nullptr ? update_kernel<kWidth, false> : update_kernel<kWidth, true>)
            : (compute == nullptr ? update_kernel<1, false> : update_kernel<1, true>);
  launch(queue, "adamw", blocks_for(count, int64_t{kBlockThreads} * (packs ? kWidth : 1)),
         kBlockThreads, kernel, adamw_factors(step), count, grad, value, m, v, compute);
}

}  // namespace ckpt::kernels
