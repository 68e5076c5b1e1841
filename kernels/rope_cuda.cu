#include "kernels/bf16.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/rope.h"

namespace ckpt::kernels {
namespace {

// Rounds to nearest, ties to even, two values by one instruction. A NaN stays a NaN, but all become
// the same one, 0x7fff, where to_bf16() keeps the sign and the upper bits: to_bf16() takes eight
// instructions per value, which is more than rotating does.
template <int kWidth>
__device__ Packed<Bf16, kWidth> rounded(const Packed<float, kWidth>& from, Bf16 /*to*/) {
#if defined(__CUDA_ARCH__)
  if constexpr (kWidth % 2 == 0) {
    struct Pairs {
      uint32_t pair[kWidth / 2];
    } pairs;
#pragma unroll
    for (int j = 0; j < kWidth / 2; ++j) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(pairs.pair[j])
          : "f"(from.values[2 * j + 1]), "f"(from.values[2 * j]));
    }
    return std::bit_cast<Packed<Bf16, kWidth>>(pairs);
  } else
#endif
  {
    Packed<Bf16, kWidth> to;
    for (int j = 0; j < kWidth; ++j) to.values[j] = to_bf16(from.values[j]);
    return to;
  }
}
template <int kWidth>
__device__ const Packed<float, kWidth>& rounded(const Packed<float, kWidth>& from, float /*to*/) {
  return from;
}

// a % b of numbers that are not negative. Avoids the 64-bit division, which takes as long as a
// load.
__device__ int64_t remainder_of(int64_t a, int64_t b) {
  if ((a | b) >> 32 != 0) return a % b;
  return static_cast<uint32_t>(a) % static_cast<uint32_t>(b);
}

// direction +1 rotates by the angle, -1 by its negative. Threads: x along a head, y heads, z
// tokens, which saves most of the divisions of a flat index.
template <int kWidth, typename Real>
__global__ void __launch_bounds__(kBlockThreads, 5)
    rotate_kernel(RopeShape shape, const float* __restrict__ cosine, const float* __restrict__ sine,
                  float direction, Real* __restrict__ x) {
  const int64_t half = shape.head_dim / 2;
  const int64_t token_step = int64_t{gridDim.x} * blockDim.z;
  for (int64_t token = int64_t{blockIdx.x} * blockDim.z + threadIdx.z; token < shape.tokens;
       token += token_step) {
    const int64_t angles = remainder_of(token, shape.seq_len) * half;
    for (int64_t i = int64_t{threadIdx.x} * kWidth; i < half; i += int64_t{blockDim.x} * kWidth) {
      const auto c = load_packed<kWidth>(cosine + angles + i);
      const auto s = load_packed<kWidth>(sine + angles + i);
      for (int64_t head = threadIdx.y; head < shape.heads; head += blockDim.y) {
        Real* const at = x + (token * shape.heads + head) * shape.head_dim + i;
        const auto low = load_packed<kWidth>(at);
        const auto high = load_packed<kWidth>(at + half);
        Packed<float, kWidth> turned_low, turned_high;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float a = to_float(low.values[j]);
          const float b = to_float(high.values[j]);
          const float signed_sine = direction * s.values[j];
          turned_low.values[j] = a * c.values[j] - b * signed_sine;
          turned_high.values[j] = b * c.values[j] + a * signed_sine;
        }
        store_packed(at, rounded(turned_low, Real{}));
        store_packed(at + half, rounded(turned_high, Real{}));
      }
    }
  }
}

template <int kWidth, typename Real>
void launch_rotate(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
                   float direction, Real* x) {
  const int64_t packs = shape.head_dim / 2 / kWidth;
  if (packs == 0 || shape.heads == 0) return;
  constexpr int64_t kBlockTokensMax = 64;  // CUDA's limit
  // A block per token or few: blocks that begin when others end keep the memory busier than blocks
  // that all take several turns.
  constexpr int64_t kBlocksMax = 16 * kGridBlocksMax;
  const int64_t along = std::min<int64_t>(packs, kBlockThreads);
  const int64_t heads = std::min<int64_t>(shape.heads, kBlockThreads / along);
  const int64_t tokens = std::min(kBlockThreads / (along * heads), kBlockTokensMax);
  const dim3 block(static_cast<unsigned>(along), static_cast<unsigned>(heads),
                   static_cast<unsigned>(tokens));
  launch(queue, "rope", blocks_for(shape.tokens, tokens, kBlocksMax), block,
         rotate_kernel<kWidth, Real>, shape, cosine, sine, direction, x);
}

template <typename Real>
void rotate(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
            float direction, Real* x) {
  constexpr int kWidth = kPackCount<Real>;
  const bool packs = packable(shape.head_dim / 2, kWidth, cosine, sine, x);
  const auto turn = packs ? launch_rotate<kWidth, Real> : launch_rotate<1, Real>;
  turn(queue, shape, cosine, sine, direction, x);
}

}  // namespace

template <typename Real>
void rope_forward(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
                  Real* x) {
  rotate(queue, shape, cosine, sine, 1.0f, x);
}

template <typename Real>
void rope_backward(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
                   Real* dx) {
  rotate(queue, shape, cosine, sine, -1.0f, dx);
}

template void rope_forward<float>(CudaQueue&, const RopeShape&, const float*, const float*, float*);
template void rope_forward<Bf16>(CudaQueue&, const RopeShape&, const float*, const float*, Bf16*);
template void rope_backward<float>(CudaQueue&, const RopeShape&, const float*, const float*,
                                   float*);
template void rope_backward<Bf16>(CudaQueue&, const RopeShape&, const float*, const float*, Bf16*);

}  // namespace ckpt::kernels
