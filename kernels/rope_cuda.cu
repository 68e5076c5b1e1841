#include "kernels/bf16.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"
#include "kernels/rope.h"

namespace ckpt::kernels {
namespace {

// Values of a pack. Those of bf16 are of 8 bytes: with 16 a thread had to hold too many angles.
constexpr int kPack = 4;
// Heads of a thread whose loads do not wait for each other: 64 bytes.
template <typename Real>
constexpr int kHeadsInFlight = 8 / static_cast<int>(sizeof(Real));

// a % b of numbers that are not negative: a division of 64 bits takes four times as long.
__device__ int64_t remainder_of(int64_t a, int64_t b) {
  if ((a | b) >> 32 != 0) return a % b;
  return static_cast<uint32_t>(a) % static_cast<uint32_t>(b);
}

template <typename Real, int kWidth>
struct Halves {
  Packed<Real, kWidth> low, high;

  __device__ void load(const Real* at, int64_t half) {
    low = load_packed<kWidth>(at);
    high = load_packed<kWidth>(at + half);
  }
  __device__ void store_rotated(const Packed<float, kWidth>& cosine,
                                const Packed<float, kWidth>& signed_sine, Real* at, int64_t half) {
    for (int j = 0; j < kWidth; ++j) {
      const float a = to_float(low.values[j]);
      const float b = to_float(high.values[j]);
      low.values[j] = from_float<Real>(a * cosine.values[j] - b * signed_sine.values[j]);
      high.values[j] = from_float<Real>(b * cosine.values[j] + a * signed_sine.values[j]);
    }
    store_packed(at, low);
    store_packed(at + half, high);
  }
};

// direction +1 rotates by the angle, -1 by its negative. Threads: x along a head, y heads, z
// tokens, which saves most of the divisions of a flat index.
template <int kWidth, typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    rotate_kernel(RopeShape shape, const float* __restrict__ cosine, const float* __restrict__ sine,
                  float direction, Real* __restrict__ x) {
  constexpr int kHeads = kHeadsInFlight<Real>;
  const int64_t half = shape.head_dim / 2;
  const int64_t token_step = int64_t{gridDim.x} * blockDim.z;
  const int64_t position_step = remainder_of(token_step, shape.seq_len);
  const int64_t first = int64_t{blockIdx.x} * blockDim.z + threadIdx.z;
  int64_t position = remainder_of(first, shape.seq_len);
  for (int64_t token = first; token < shape.tokens; token += token_step) {
    for (int64_t i = int64_t{threadIdx.x} * kWidth; i < half; i += int64_t{blockDim.x} * kWidth) {
      const auto c = load_packed<kWidth>(cosine + position * half + i);
      auto s = load_packed<kWidth>(sine + position * half + i);
      for (float& value : s.values) value *= direction;
      Real* const of_token = x + token * shape.heads * shape.head_dim + i;
      for (int64_t head = threadIdx.y; head < shape.heads; head += kHeads * blockDim.y) {
        Halves<Real, kWidth> halves[kHeads];
#pragma unroll
        for (int j = 0; j < kHeads; ++j) {
          const int64_t other = head + j * blockDim.y;
          if (other < shape.heads) halves[j].load(of_token + other * shape.head_dim, half);
        }
#pragma unroll
        for (int j = 0; j < kHeads; ++j) {
          const int64_t other = head + j * blockDim.y;
          if (other < shape.heads) {
            halves[j].store_rotated(c, s, of_token + other * shape.head_dim, half);
          }
        }
      }
    }
    position += position_step;
    if (position >= shape.seq_len) position -= shape.seq_len;
  }
}

template <int kWidth, typename Real>
void launch_rotate(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
                   float direction, Real* x) {
  const int64_t packs = shape.head_dim / 2 / kWidth;
  if (packs == 0 || shape.heads == 0) return;
  constexpr int64_t kBlockTokensMax = 64;  // CUDA's limit
  const int64_t along = std::min<int64_t>(packs, kBlockThreads);
  const int64_t rounds = (shape.heads + kHeadsInFlight<Real> - 1) / kHeadsInFlight<Real>;
  const int64_t heads = std::min(rounds, kBlockThreads / along);
  const int64_t tokens = std::min(kBlockThreads / (along * heads), kBlockTokensMax);
  const dim3 block(static_cast<unsigned>(along), static_cast<unsigned>(heads),
                   static_cast<unsigned>(tokens));
  launch(queue, "rope", blocks_for(shape.tokens, tokens), block, rotate_kernel<kWidth, Real>, shape,
         cosine, sine, direction, x);
}

template <typename Real>
void rotate(CudaQueue& queue, const RopeShape& shape, const float* cosine, const float* sine,
            float direction, Real* x) {
  const bool packs = packable(shape.head_dim / 2, kPack, cosine, sine, x);
  const auto turn = packs ? launch_rotate<kPack, Real> : launch_rotate<1, Real>;
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
