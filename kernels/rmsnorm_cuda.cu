#include <algorithm>

#include "kernels/bf16.h"
#include "kernels/cuda/packed.h"
#include "kernels/rmsnorm.h"

namespace ckpt::kernels {
namespace {

// A row belongs to kAcross threads side by side: a warp, or the whole block. Each of them has the
// packs threadIdx.x, threadIdx.x + kAcross, ... of it and keeps the first kHeld in registers, so
// that memory is read once. If there are more (kHasRest), the rest of the row is read again.
enum class Rest : bool { kNone, kSome };
template <int kValues, unsigned kThreads, int kPacks, Rest kRest = Rest::kNone>
struct Layout {
  static constexpr int kPack = kValues;  // values of a pack
  static constexpr unsigned kAcross = kThreads;
  static constexpr int kHeld = kPacks;
  static constexpr bool kHasRest = kRest == Rest::kSome;
  static constexpr unsigned kBlock = std::max(kAcross, kBlockThreads);
  static constexpr unsigned kRowsPerBlock = kBlock / kAcross;
  static constexpr int64_t kStep = int64_t{kAcross} * kPack;  // from a thread's pack to its next
  static bool holds(int64_t width) { return width <= kStep * kHeld; }
};

// The first column of the thread's pack `i`.
template <typename L>
__device__ int64_t column_of(int i) {
  return int64_t{threadIdx.x} * L::kPack + i * L::kStep;
}
// Calls work(first column) for each of the thread's packs that are not held.
template <typename L, typename Work>
__device__ void for_rest(int64_t width, Work work) {
  if constexpr (L::kHasRest) {
#pragma unroll 1
    for (int64_t at = column_of<L>(L::kHeld); at < width; at += L::kStep) work(at);
  }
}

template <typename L>
struct RowSum {
  float shared[L::kAcross / kWarpThreads];
};
// The sum over the threads of a row, in a fixed order.
template <typename L>
__device__ float row_sum(float value, RowSum<L>& memory) {
  if constexpr (L::kAcross == kWarpThreads) {
    return warp_sum(value);
  } else {
    return block_sum<L::kAcross>(value, memory.shared);
  }
}

template <int kCount>
__device__ void add_squares(const Packed<float, kCount>& x, float& squares) {
  for (int j = 0; j < kCount; ++j) squares += x.values[j] * x.values[j];
}

template <typename Real, int kCount>
__device__ void store_normalised(const Packed<float, kCount>& x, float inverse, const float* scale,
                                 Real* y) {
  const auto factor = load_packed<kCount>(scale);
  Packed<Real, kCount> out;
  for (int j = 0; j < kCount; ++j) {
    out.values[j] = from_float<Real>(factor.values[j] * (x.values[j] * inverse));
  }
  store_packed(y, out);
}

template <typename Real, typename L>
__global__ void __launch_bounds__(L::kBlock)
    forward_kernel(RmsNormShape shape, const float* __restrict__ x, const float* __restrict__ scale,
                   Real* __restrict__ y, float* __restrict__ inverse_rms) {
  __shared__ RowSum<L> memory;
  const int64_t width = shape.width;
  const float inverse_width = 1.0f / static_cast<float>(width);
  for (int64_t row = first_row(); row < shape.rows; row += row_stride()) {
    const float* const in = x + row * width;
    Real* const out = y + row * width;
    Packed<float, L::kPack> held[L::kHeld];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < L::kHeld; ++i) {
      const int64_t at = column_of<L>(i);
      held[i] = at < width ? load_packed<L::kPack>(in + at) : Packed<float, L::kPack>{};
    }
#pragma unroll
    for (int i = 0; i < L::kHeld; ++i) add_squares(held[i], squares);
    for_rest<L>(width, [&](int64_t at) { add_squares(load_packed<L::kPack>(in + at), squares); });
    const float mean = row_sum<L>(squares, memory) * inverse_width;
    const float inverse = rsqrtf(mean + shape.eps);
    if (threadIdx.x == 0) inverse_rms[row] = inverse;
#pragma unroll
    for (int i = 0; i < L::kHeld; ++i) {
      const int64_t at = column_of<L>(i);
      if (at < width) store_normalised(held[i], inverse, scale + at, out + at);
    }
    for_rest<L>(width, [&](int64_t at) {
      store_normalised(load_packed<L::kPack>(in + at), inverse, scale + at, out + at);
    });
  }
}

// With n = x * inverse and g = dy * scale: dx += inverse * (g - n * mean(g * n)). This row's share
// of the scale's gradient is dy * n.
template <typename Real, int kCount>
struct BackwardPack {
  Packed<Real, kCount> dy;
  Packed<float, kCount> x;

  __device__ void load(const Real* dy_at, const float* x_at) {
    dy = load_packed<kCount>(dy_at);
    x = load_packed<kCount>(x_at);
  }
  __device__ float gn(const float* scale, float inverse) const {
    const auto factor = load_packed<kCount>(scale);
    float sum = 0;
    for (int j = 0; j < kCount; ++j) {
      sum += to_float(dy.values[j]) * factor.values[j] * (x.values[j] * inverse);
    }
    return sum;
  }
  __device__ void add(const float* scale, float inverse, float mean, Packed<float, kCount>& dx,
                      Packed<float, kCount>& dscale) const {
    const auto factor = load_packed<kCount>(scale);
    for (int j = 0; j < kCount; ++j) {
      const float d = to_float(dy.values[j]);
      const float normalised = x.values[j] * inverse;
      dx.values[j] += inverse * (d * factor.values[j] - normalised * mean);
      dscale.values[j] += d * normalised;
    }
  }
};

// Part p handles the rows p, p + parts, ... in order, and writes their share of the scale's
// gradient to partial[p, width]. Held columns are summed in registers, the others in `partial`.
template <typename Real, typename L>
__global__ void __launch_bounds__(L::kBlock, L::kBlock* L::kHeld > 1024 ? 1 : 2)
    backward_kernel(RmsNormShape shape, int64_t parts, const Real* __restrict__ dy,
                    const float* __restrict__ x, const float* __restrict__ scale,
                    const float* __restrict__ inverse_rms, float* __restrict__ dx,
                    float* __restrict__ partial) {
  __shared__ RowSum<L> memory;
  const int64_t width = shape.width;
  const float inverse_width = 1.0f / static_cast<float>(width);
  const int64_t part = first_row();
  if (part >= parts) return;  // only whole warps, each with rows of its own
  float* const mine = partial + part * width;
  Packed<float, L::kPack> dscale[L::kHeld] = {};
  for (int64_t row = part; row < shape.rows; row += parts) {
    const int64_t first = row * width;
    const float inverse = inverse_rms[row];
    BackwardPack<Real, L::kPack> held[L::kHeld];
    Packed<float, L::kPack> result[L::kHeld];
#pragma unroll
    for (int i = 0; i < L::kHeld; ++i) {
      const int64_t at = column_of<L>(i);
      if (at >= width) continue;
      held[i].load(dy + first + at, x + first + at);
      result[i] = load_packed<L::kPack>(dx + first + at);
    }
    float gn = 0;
#pragma unroll
    for (int i = 0; i < L::kHeld; ++i) {
      if (column_of<L>(i) < width) gn += held[i].gn(scale + column_of<L>(i), inverse);
    }
    for_rest<L>(width, [&](int64_t at) {
      BackwardPack<Real, L::kPack> pack;
      pack.load(dy + first + at, x + first + at);
      gn += pack.gn(scale + at, inverse);
    });
    const float mean = row_sum<L>(gn, memory) * inverse_width;
#pragma unroll
    for (int i = 0; i < L::kHeld; ++i) {
      const int64_t at = column_of<L>(i);
      if (at >= width) continue;
      held[i].add(scale + at, inverse, mean, result[i], dscale[i]);
      store_packed(dx + first + at, result[i]);
    }
    for_rest<L>(width, [&](int64_t at) {
      BackwardPack<Real, L::kPack> pack;
      pack.load(dy + first + at, x + first + at);
      auto sum = load_packed<L::kPack>(dx + first + at);
      auto share = row == part ? Packed<float, L::kPack>{} : load_packed<L::kPack>(mine + at);
      pack.add(scale + at, inverse, mean, sum, share);
      store_packed(dx + first + at, sum);
      store_packed(mine + at, share);
    });
  }
#pragma unroll
  for (int i = 0; i < L::kHeld; ++i) {
    if (column_of<L>(i) < width) store_packed(mine + column_of<L>(i), dscale[i]);
  }
}

// Threads: x columns, y parts; the sums of every y are added in order.
constexpr unsigned kAddColumns = kWarpThreads;
constexpr unsigned kAddRows = 16;
__global__ void __launch_bounds__(kAddColumns* kAddRows)
    add_parts_kernel(int64_t width, int64_t parts, const float* __restrict__ partial,
                     float* __restrict__ dscale) {
  __shared__ float sums[kAddRows][kAddColumns];
  for (int64_t first = int64_t{blockIdx.x} * kAddColumns; first < width;
       first += int64_t{gridDim.x} * kAddColumns) {
    const int64_t column = first + threadIdx.x;
    float sum = 0;
    if (column < width) {
#pragma unroll 8
      for (int64_t part = threadIdx.y; part < parts; part += kAddRows) {
        sum += partial[part * width + column];
      }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
      float total = 0;
      for (unsigned y = 0; y < kAddRows; ++y) total += sums[y][threadIdx.x];
      dscale[column] += total;
    }
    __syncthreads();
  }
}

// Number of parts: enough to fill a device, and few enough that `partial` is small against the
// rows.
int64_t parts_of(const RmsNormShape& shape) {
  constexpr int64_t kPartsMax = 512;
  constexpr int64_t kPartialBytesMax = int64_t{64} << 20;
  const int64_t fitting = kPartialBytesMax / (shape.width * int64_t{sizeof(float)});
  return std::min({shape.rows, kPartsMax, std::max<int64_t>(fitting, 1)});
}

// Calls work(layout), if possible with a layout that holds a whole row.
template <typename Work>
void with_layout(int64_t width, bool packed, Work work) {
  using OneByOne = Layout<1, kWarpThreads, 4>;
  using WarpWide = Layout<4, kWarpThreads, 4>;
  using Narrow = Layout<4, kBlockThreads, 1>;
  using Medium = Layout<4, kBlockThreads, 2>;
  using Wide = Layout<4, 2 * kBlockThreads, 2>;
  if (!packed && OneByOne::holds(width)) return work(OneByOne());
  if (!packed) return work(Layout<1, 2 * kBlockThreads, 4, Rest::kSome>());
  if (WarpWide::holds(width)) return work(WarpWide());
  if (Narrow::holds(width)) return work(Narrow());
  if (Medium::holds(width)) return work(Medium());
  if (Wide::holds(width)) return work(Wide());
  return work(Layout<4, 2 * kBlockThreads, 4, Rest::kSome>());
}

template <typename L>
dim3 block_of() {
  return dim3(L::kAcross, L::kRowsPerBlock);
}

}  // namespace

template <typename Real>
void rmsnorm_forward(CudaQueue& queue, const RmsNormShape& shape, const float* x,
                     const float* scale, Real* y, float* inverse_rms) {
  const bool packed = packable(shape.width, 4, x, scale, y);
  with_layout(shape.width, packed, [&]<typename L>(L) {
    launch(queue, "rmsnorm", blocks_for(shape.rows, L::kRowsPerBlock), block_of<L>(),
           forward_kernel<Real, L>, shape, x, scale, y, inverse_rms);
  });
}

template <typename Real>
void rmsnorm_backward(CudaQueue& queue, const RmsNormShape& shape, const Real* dy, const float* x,
                      const float* scale, const float* inverse_rms, float* dx, float* dscale) {
  if (shape.rows == 0 || shape.width == 0) return;
  const int64_t parts = parts_of(shape);
  const auto partial_bytes = static_cast<size_t>(parts * shape.width) * sizeof(float);
  auto* const partial = static_cast<float*>(queue.scratch(partial_bytes));
  const bool packed = packable(shape.width, 4, dy, x, scale, dx);
  with_layout(shape.width, packed, [&]<typename L>(L) {
    launch(queue, "rmsnorm backward", blocks_for(parts, L::kRowsPerBlock), block_of<L>(),
           backward_kernel<Real, L>, shape, parts, dy, x, scale, inverse_rms, dx, partial);
  });
  launch(queue, "rmsnorm scale gradient", blocks_for(shape.width, kAddColumns),
         dim3(kAddColumns, kAddRows), add_parts_kernel, shape.width, parts, partial, dscale);
}

template void rmsnorm_forward<float>(CudaQueue&, const RmsNormShape&, const float*, const float*,
                                     float*, float*);
template void rmsnorm_forward<Bf16>(CudaQueue&, const RmsNormShape&, const float*, const float*,
                                    Bf16*, float*);
template void rmsnorm_backward<float>(CudaQueue&, const RmsNormShape&, const float*, const float*,
                                      const float*, const float*, float*, float*);
template void rmsnorm_backward<Bf16>(CudaQueue&, const RmsNormShape&, const Bf16*, const float*,
                                     const float*, const float*, float*, float*);

}  // namespace ckpt::kernels
