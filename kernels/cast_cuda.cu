#include "kernels/cast.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"

namespace ckpt::kernels {
namespace {

// Independent loads of packs that each thread keeps in flight.
constexpr int kInFlight = 4;

// Neighbouring threads handle neighbouring packs, so that each store instruction of a warp writes
// contiguous memory.
template <int kWidth, typename From, typename To>
__global__ void __launch_bounds__(kBlockThreads)
    cast_kernel(int64_t count, const From* __restrict__ from, To* __restrict__ to) {
  const int64_t packs = count / kWidth;
  for (int64_t first = int64_t{blockIdx.x} * kInFlight * kBlockThreads + threadIdx.x; first < packs;
       first += int64_t{gridDim.x} * kInFlight * kBlockThreads) {
    Packed<From, kWidth> in[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t pack = first + i * int64_t{kBlockThreads};
      if (pack < packs) in[i] = load_packed<kWidth>(from + pack * kWidth);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t pack = first + i * int64_t{kBlockThreads};
      if (pack >= packs) continue;
      Packed<To, kWidth> out;
      for (int j = 0; j < kWidth; ++j) out.values[j] = from_float<To>(to_float(in[i].values[j]));
      store_packed(to + pack * kWidth, out);
    }
  }
  const int64_t rest = packs * kWidth + int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (rest < count) to[rest] = from_float<To>(to_float(from[rest]));
}

// kWidth: values of a pack.
template <int kWidth, typename From, typename To>
void launch_cast(CudaQueue& queue, int64_t count, const From* from, To* to) {
  const bool packed = packable(kWidth, kWidth, from, to);
  const int64_t per_block = int64_t{kBlockThreads} * kInFlight * (packed ? kWidth : 1);
  launch(queue, "cast", blocks_for(count, per_block), kBlockThreads,
         packed ? cast_kernel<kWidth, From, To> : cast_kernel<1, From, To>, count, from, to);
}

}  // namespace

void cast(CudaQueue& queue, int64_t count, const float* from, Bf16* to) {
  launch_cast<kPackCount<Bf16>>(queue, count, from, to);
}

void cast(CudaQueue& queue, int64_t count, const Bf16* from, float* to) {
  launch_cast<kPackCount<float>>(queue, count, from, to);
}

}  // namespace ckpt::kernels
