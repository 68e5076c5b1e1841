#include <limits>

#include "kernels/bf16.h"
#include "kernels/cuda/causal_softmax.h"
#include "kernels/cuda/packed.h"

namespace ckpt::kernels {
namespace {

// Values of a row that a thread moves at once.
constexpr int kRowPack = 4;
// One block per row; one warp for a short row, so that few threads are idle. Blocks are no larger,
// so that a row stays in the cache: it is read two or three times.
constexpr unsigned kShortThreads = kWarpThreads;
constexpr unsigned kLongThreads = 4 * kWarpThreads;
constexpr int64_t kShortRow = 2 * kShortThreads;
constexpr int64_t kBlocksMax = 1 << 16;

// Row i of a matrix is the softmax of its first i + 1 scores, and zero after them.
template <typename Real, int kCount, unsigned kThreads>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(int64_t rows, int64_t seq_len, const float* scores, Real* probabilities) {
  __shared__ float shared[kThreads / kWarpThreads];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t visible = row % seq_len + 1;
    const float* in = scores + row * seq_len;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t i = threadIdx.x * kCount; i < visible; i += kThreads * kCount) {
      const auto pack = load_packed<kCount>(in + i);
      for (int j = 0; j < kCount; ++j) {
        if (i + j < visible) largest = fmaxf(largest, pack.values[j]);
      }
    }
    largest = block_max<kThreads>(largest, shared);
    float total = 0;
    for (int64_t i = threadIdx.x * kCount; i < visible; i += kThreads * kCount) {
      const auto pack = load_packed<kCount>(in + i);
      for (int j = 0; j < kCount; ++j) {
        if (i + j < visible) total += expf(pack.values[j] - largest);
      }
    }
    const float inverse = 1.0f / block_sum<kThreads>(total, shared);
    for (int64_t i = threadIdx.x * kCount; i < seq_len; i += kThreads * kCount) {
      Packed<float, kCount> pack{};
      if (i < visible) pack = load_packed<kCount>(in + i);
      Packed<Real, kCount> result;
      for (int j = 0; j < kCount; ++j) {
        const bool seen = i + j < visible;
        result.values[j] = from_float<Real>(seen ? expf(pack.values[j] - largest) * inverse : 0.0f);
      }
      store_packed(probabilities + row * seq_len + i, result);
    }
  }
}

// dscores = scale * p * (dp - sum(dp * p)), zero where a token would look ahead.
template <typename Real, int kCount, unsigned kThreads>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(int64_t rows, int64_t seq_len, float scale, const Real* probabilities,
                            const float* dprobabilities, Real* dscores) {
  __shared__ float shared[kThreads / kWarpThreads];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t visible = row % seq_len + 1;
    const float* dp = dprobabilities + row * seq_len;
    const Real* p = probabilities + row * seq_len;
    float sum = 0;
    for (int64_t i = threadIdx.x * kCount; i < visible; i += kThreads * kCount) {
      const auto gradients = load_packed<kCount>(dp + i);
      const auto values = load_packed<kCount>(p + i);
      for (int j = 0; j < kCount; ++j) {
        if (i + j < visible) sum += gradients.values[j] * to_float(values.values[j]);
      }
    }
    const float mean = block_sum<kThreads>(sum, shared);
    for (int64_t i = threadIdx.x * kCount; i < seq_len; i += kThreads * kCount) {
      Packed<float, kCount> gradients{};
      Packed<Real, kCount> values{};
      if (i < visible) {
        gradients = load_packed<kCount>(dp + i);
        values = load_packed<kCount>(p + i);
      }
      Packed<Real, kCount> result;
      for (int j = 0; j < kCount; ++j) {
        const float d = scale * to_float(values.values[j]) * (gradients.values[j] - mean);
        result.values[j] = from_float<Real>(i + j < visible ? d : 0.0f);
      }
      store_packed(dscores + row * seq_len + i, result);
    }
  }
}

// Launches the kernel for rows of this length.
template <typename... Parameters, typename... Arguments>
void launch_rows(CudaQueue& queue, const char* name, int64_t rows, int64_t seq_len,
                 void (*for_short)(Parameters...), void (*for_long)(Parameters...),
                 Arguments... arguments) {
  const bool is_short = seq_len <= kShortRow;
  launch(queue, name, blocks_for(rows, 1, kBlocksMax), is_short ? kShortThreads : kLongThreads,
         is_short ? for_short : for_long, rows, seq_len, arguments...);
}

}  // namespace

template <typename Real>
void causal_softmax(CudaQueue& queue, int64_t rows, int64_t seq_len, const float* scores,
                    Real* probabilities) {
  const bool packed = packable(seq_len, kRowPack, scores, probabilities);
  launch_rows(
      queue, "attention softmax", rows, seq_len,
      packed ? softmax_kernel<Real, kRowPack, kShortThreads>
             : softmax_kernel<Real, 1, kShortThreads>,
      packed ? softmax_kernel<Real, kRowPack, kLongThreads> : softmax_kernel<Real, 1, kLongThreads>,
      scores, probabilities);
}

template <typename Real>
void causal_softmax_backward(CudaQueue& queue, int64_t rows, int64_t seq_len, float scale,
                             const Real* probabilities, const float* dprobabilities,
                             Real* dscores) {
  const bool packed = packable(seq_len, kRowPack, probabilities, dprobabilities, dscores);
  launch_rows(queue, "attention softmax backward", rows, seq_len,
              packed ? softmax_backward_kernel<Real, kRowPack, kShortThreads>
                     : softmax_backward_kernel<Real, 1, kShortThreads>,
              packed ? softmax_backward_kernel<Real, kRowPack, kLongThreads>
                     : softmax_backward_kernel<Real, 1, kLongThreads>,
              scale, probabilities, dprobabilities, dscores);
}

template void causal_softmax<float>(CudaQueue&, int64_t, int64_t, const float*, float*);
template void causal_softmax<Bf16>(CudaQueue&, int64_t, int64_t, const float*, Bf16*);
template void causal_softmax_backward<float>(CudaQueue&, int64_t, int64_t, float, const float*,
                                             const float*, float*);
template void causal_softmax_backward<Bf16>(CudaQueue&, int64_t, int64_t, float, const Bf16*,
                                            const float*, Bf16*);

}  // namespace ckpt::kernels
