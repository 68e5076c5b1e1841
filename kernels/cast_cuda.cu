#include "kernels/cast.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"

namespace ckpt::kernels {
namespace {

template <int kWidth, typename From, typename To>
__global__ void __launch_bounds__(kBlockThreads)
    cast_kernel(int64_t count, const From* from, To* to) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t packs = count / kWidth;
  for (int64_t pack = first; pack < packs; pack += step) {
    const Packed<From, kWidth> in = load_packed<kWidth>(from + pack * kWidth);
    Packed<To, kWidth> out;
    for (int j = 0; j < kWidth; ++j) out.values[j] = from_float<To>(to_float(in.values[j]));
    store_packed(to + pack * kWidth, out);
  }
  for (int64_t i = packs * kWidth + first; i < count; i += step) {
    to[i] = from_float<To>(to_float(from[i]));
  }
}

template <typename From, typename To>
void launch_cast(CudaQueue& queue, int64_t count, const From* from, To* to) {
  constexpr int kWidth = kPackCount<Bf16>;
  if (packable(kWidth, kWidth, from, to)) {
    launch(queue, "cast", blocks_for(count, int64_t{kBlockThreads} * kWidth), kBlockThreads,
           cast_kernel<kWidth, From, To>, count, from, to);
  } else {
    launch(queue, "cast", blocks_for(count, kBlockThreads), kBlockThreads, cast_kernel<1, From, To>,
           count, from, to);
  }
}

}  // namespace

void cast(CudaQueue& queue, int64_t count, const float* from, Bf16* to) {
  launch_cast(queue, count, from, to);
}

void cast(CudaQueue& queue, int64_t count, const Bf16* from, float* to) {
  launch_cast(queue, count, from, to);
}

}  // namespace ckpt::kernels
