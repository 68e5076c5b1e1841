#include <limits>

#include "kernels/bf16.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed.h"

namespace ckpt::kernels {
namespace {

// A row of a small vocabulary is too little work for more than one warp.
constexpr int64_t kWarpVocabMax = 1024;

constexpr float kLeast = -std::numeric_limits<float>::infinity();

// Reference value for exponents: the largest so far, or 0 while there is only -inf, because
// exp(-inf - -inf) is not a number.
__device__ inline float pivot(float largest) { return largest == kLeast ? 0.0f : largest; }

// One block of kThreads per row reads the row once: each thread rescales its sum of exponentials
// whenever it finds a larger value.
template <unsigned kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(CrossEntropyShape shape, const float* logits, const int32_t* targets,
                   float* log_sum_exp, double* losses) {
  __shared__ float largest_of_warps[kThreads / kWarpThreads];
  __shared__ double totals_of_warps[kThreads / kWarpThreads];
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    if (targets[row] == shape.ignored) {
      if (threadIdx.x == 0) {
        log_sum_exp[row] = 0;
        losses[row] = 0;
      }
      continue;
    }
    const float* values = logits + row * shape.vocab;
    float largest = kLeast;
    float total = 0;
    for (int64_t i = int64_t{threadIdx.x} * kWidth; i < shape.vocab;
         i += int64_t{kThreads} * kWidth) {
      const auto value = load_packed<kWidth>(values + i);
      const float before = largest;
      for (int j = 0; j < kWidth; ++j) largest = fmaxf(largest, value.values[j]);
      total *= expf(before - pivot(largest));
      for (int j = 0; j < kWidth; ++j) total += expf(value.values[j] - pivot(largest));
    }
    const float row_largest = block_max<kThreads>(largest, largest_of_warps);
    const float share = total * expf(largest - pivot(row_largest));
    const double row_total = block_sum<kThreads>(static_cast<double>(share), totals_of_warps);
    if (threadIdx.x == 0) {
      const double log_total = log(row_total);
      log_sum_exp[row] = row_largest + static_cast<float>(log_total);
      losses[row] = log_total + row_largest - values[targets[row]];
    }
  }
}

// One block.
__global__ void __launch_bounds__(kBlockThreads)
    sum_kernel(CrossEntropyShape shape, const int32_t* targets, const double* losses,
               CrossEntropySum* sum) {
  __shared__ double losses_of_warps[kBlockThreads / kWarpThreads];
  __shared__ int64_t targets_of_warps[kBlockThreads / kWarpThreads];
  double loss = 0;
  int64_t count = 0;
  for (int64_t row = threadIdx.x; row < shape.rows; row += kBlockThreads) {
    loss += losses[row];
    count += targets[row] == shape.ignored ? 0 : 1;
  }
  loss = block_sum<kBlockThreads>(loss, losses_of_warps);
  count = block_sum<kBlockThreads>(count, targets_of_warps);
  if (threadIdx.x == 0) {
    sum->loss = loss;
    sum->targets = count;
  }
}

// One block of kThreads per row. The thread that replaces a value reads it first.
template <unsigned kThreads, int kWidth, typename Real>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(CrossEntropyShape shape, float scale, const float* logits,
                    const int32_t* targets, const float* log_sum_exp, Real* dlogits) {
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const int64_t target = targets[row];
    const bool ignored = target == shape.ignored;
    const float log_total = log_sum_exp[row];
    const int64_t first = row * shape.vocab;
    for (int64_t i = int64_t{threadIdx.x} * kWidth; i < shape.vocab;
         i += int64_t{kThreads} * kWidth) {
      const auto value = load_packed<kWidth>(logits + first + i);
      Packed<Real, kWidth> d;
      for (int j = 0; j < kWidth; ++j) {
        const float one_hot = i + j == target ? scale : 0.0f;
        const float gradient = scale * expf(value.values[j] - log_total) - one_hot;
        d.values[j] = from_float<Real>(ignored ? 0.0f : gradient);
      }
      store_packed(dlogits + first + i, d);
    }
  }
}

template <unsigned kThreads, int kWidth>
void launch_forward(CudaQueue& queue, const CrossEntropyShape& shape, const float* logits,
                    const int32_t* targets, float* log_sum_exp, double* losses) {
  launch(queue, "cross-entropy", blocks_for(shape.rows, 1), kThreads,
         forward_kernel<kThreads, kWidth>, shape, logits, targets, log_sum_exp, losses);
}

template <unsigned kThreads, int kWidth, typename Real>
void launch_backward(CudaQueue& queue, const CrossEntropyShape& shape, float scale,
                     const float* logits, const int32_t* targets, const float* log_sum_exp,
                     Real* dlogits) {
  launch(queue, "cross-entropy backward", blocks_for(shape.rows, 1), kThreads,
         backward_kernel<kThreads, kWidth, Real>, shape, scale, logits, targets, log_sum_exp,
         dlogits);
}

}  // namespace

void cross_entropy_forward(CudaQueue& queue, const CrossEntropyShape& shape, const float* logits,
                           const int32_t* targets, float* log_sum_exp, CrossEntropySum* sum) {
  auto* const losses =
      static_cast<double*>(queue.scratch(static_cast<size_t>(shape.rows) * sizeof(double)));
  const bool packs = packable(shape.vocab, kPackCount<float>, logits);
  const bool warp = shape.vocab <= kWarpVocabMax;
  const auto forward =
      packs ? (warp ? launch_forward<kWarpThreads, kPackCount<float>>
                    : launch_forward<kBlockThreads, kPackCount<float>>)
            : (warp ? launch_forward<kWarpThreads, 1> : launch_forward<kBlockThreads, 1>);
  forward(queue, shape, logits, targets, log_sum_exp, losses);
  launch(queue, "cross-entropy sum", 1, kBlockThreads, sum_kernel, shape, targets, losses, sum);
}

template <typename Real>
void cross_entropy_backward(CudaQueue& queue, const CrossEntropyShape& shape, float scale,
                            const float* logits, const int32_t* targets, const float* log_sum_exp,
                            Real* dlogits) {
  const bool packs = packable(shape.vocab, kPackCount<float>, logits, dlogits);
  const bool warp = shape.vocab <= kWarpVocabMax;
  const auto backward = packs ? (warp ? launch_backward<kWarpThreads, kPackCount<float>, Real>
                                      : launch_backward<kBlockThreads, kPackCount<float>, Real>)
                              : (warp ? launch_backward<kWarpThreads, 1, Real>
                                      : launch_backward<kBlockThreads, 1, Real>);
  backward(queue, shape, scale, logits, targets, log_sum_exp, dlogits);
}

template void cross_entropy_backward<float>(CudaQueue&, const CrossEntropyShape&, float,
                                            const float*, const int32_t*, const float*, float*);
template void cross_entropy_backward<Bf16>(CudaQueue&, const CrossEntropyShape&, float,
                                           const float*, const int32_t*, const float*, Bf16*);

}  // namespace ckpt::kernels
