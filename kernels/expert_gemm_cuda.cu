#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/batched_gemm.h"
#include "kernels/cuda/packed.h"
#include "kernels/expert_gemm.h"

namespace ckpt::kernels {
namespace {

// Error of at most 2 ulp; exact at both ends, where exp(-x) is 0 or infinite.
__device__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

template <typename Real, int kCount>
__global__ void __launch_bounds__(kBlockThreads)
    swiglu_kernel(int64_t packs, const Real* __restrict__ gate, const Real* __restrict__ up,
                  Real* __restrict__ inner) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < packs; i += int64_t{gridDim.x} * blockDim.x) {
    const auto gates = load_packed<kCount>(gate + i * kCount);
    const auto ups = load_packed<kCount>(up + i * kCount);
    Packed<Real, kCount> result;
    for (int j = 0; j < kCount; ++j) {
      const float g = to_float(gates.values[j]);
      result.values[j] = from_float<Real>(g * sigmoid(g) * to_float(ups.values[j]));
    }
    store_packed(inner + i * kCount, result);
  }
}

// Replaces gate and up by their gradients.
template <typename Real, int kCount>
__global__ void __launch_bounds__(kBlockThreads)
    swiglu_backward_kernel(int64_t packs, const Real* __restrict__ dinner, Real* __restrict__ gate,
                           Real* __restrict__ up) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < packs; i += int64_t{gridDim.x} * blockDim.x) {
    const auto gradients = load_packed<kCount>(dinner + i * kCount);
    auto gates = load_packed<kCount>(gate + i * kCount);
    auto ups = load_packed<kCount>(up + i * kCount);
    for (int j = 0; j < kCount; ++j) {
      const float d = to_float(gradients.values[j]);
      const float g = to_float(gates.values[j]);
      const float u = to_float(ups.values[j]);
      const float s = sigmoid(g);
      const float silu = g * s;
      ups.values[j] = from_float<Real>(d * silu);
      gates.values[j] = from_float<Real>(d * u * (s + silu * (1.0f - s)));
    }
    store_packed(gate + i * kCount, gates);
    store_packed(up + i * kCount, ups);
  }
}

template <typename Real>
int64_t rows_of(std::span<const CudaExpertGroup<Real>> groups) {
  int64_t rows = 0;
  for (const auto& group : groups) rows += group.rows;
  return rows;
}

// Calls work(group, its first row) for every expert that has rows.
template <typename Real, typename Work>
void for_each_busy(std::span<const CudaExpertGroup<Real>> groups, Work work) {
  int64_t row = 0;
  for (const auto& group : groups) {
    if (group.rows > 0) work(group, row);
    row += group.rows;
  }
}

// y[rows, out] = x[rows, in] w^T, with w as [out, in].
Product forward_product(int64_t rows, int64_t in, int64_t out) {
  return {.rows = rows, .columns = out, .inner = in, .a = {in}, .b = {in, true}, .c_stride = out};
}
// dx[rows, in] = dy[rows, out] w, or added to dx.
Product input_product(int64_t rows, int64_t in, int64_t out, float beta) {
  return {.rows = rows,
          .columns = in,
          .inner = out,
          .a = {out},
          .b = {in},
          .c_stride = in,
          .beta = beta};
}
// dw[out, in] += dy^T x, over all rows.
Product weight_product(int64_t rows, int64_t in, int64_t out) {
  return {.rows = out,
          .columns = in,
          .inner = rows,
          .a = {out, true},
          .b = {in},
          .c_stride = in,
          .beta = 1.0f};
}

// The parts of backward that are products.
template <typename Real>
struct Backward {
  CudaQueue& queue;
  std::span<const CudaExpertGroup<Real>> groups;
  ProductCalls calls;
  void** pointers;

  // One product per expert.
  template <typename Place>
  void for_all(const char* name, Place place) {
    std::vector<PlacedProduct> products;
    for_each_busy(groups, [&](const CudaExpertGroup<Real>& group, int64_t row) {
      products.push_back(place(group, row));
    });
    multiply_groups(queue, name, product_types<Real>().factors, products, pointers, calls);
  }
  // Grouped calls know one type only, and gradients of weights are fp32.
  void add_weight_gradient(const char* name, int64_t in, int64_t out, const Real* dy, const Real* x,
                           float* CudaExpertGroup<Real>::*dw) {
    for_each_busy(groups, [&](const CudaExpertGroup<Real>& group, int64_t row) {
      multiply(queue, name, product_types<Real, float>(),
               {weight_product(group.rows, in, out), dy + row * out, x + row * in, group.*dw});
    });
  }
};

}  // namespace

template <typename Real>
void expert_gemm_forward(CudaQueue& queue, const ExpertShape& shape,
                         std::span<const CudaExpertGroup<Real>> groups, const Real* x,
                         const CudaExpertActivations<Real>& kept, Real* y, ProductCalls calls) {
  const auto [hidden, intermediate] = shape;
  std::vector<PlacedProduct> widen, narrow;
  for_each_busy(groups, [&, hidden = hidden, intermediate = intermediate](
                            const CudaExpertGroup<Real>& group, int64_t row) {
    const Product up = forward_product(group.rows, hidden, intermediate);
    const Product down = forward_product(group.rows, intermediate, hidden);
    const Real* in = x + row * hidden;
    const int64_t inner = row * intermediate;
    widen.push_back({up, in, group.w1, kept.gate + inner});
    widen.push_back({up, in, group.w3, kept.up + inner});
    narrow.push_back({down, kept.inner + inner, group.w2, y + row * hidden});
  });
  if (widen.empty()) return;
  constexpr cudaDataType_t kType = product_types<Real>().factors;
  auto** pointers = static_cast<void**>(queue.scratch(3 * widen.size() * sizeof(void*)));
  multiply_groups(queue, "experts: w1, w3", kType, widen, pointers, calls);
  constexpr int kCount = kPackCount<Real>;
  const int64_t count = rows_of(groups) * intermediate;
  const bool packed = packable(count, kCount, kept.gate, kept.up, kept.inner);
  const int64_t packs = count / (packed ? kCount : 1);
  launch(queue, "experts: SwiGLU", blocks_for(packs, kBlockThreads), kBlockThreads,
         packed ? swiglu_kernel<Real, kCount> : swiglu_kernel<Real, 1>, packs, kept.gate, kept.up,
         kept.inner);
  multiply_groups(queue, "experts: w2", kType, narrow, pointers, calls);
}

template <typename Real>
void expert_gemm_backward(CudaQueue& queue, const ExpertShape& shape,
                          std::span<const CudaExpertGroup<Real>> groups, const Real* dy,
                          const Real* x, const CudaExpertActivations<Real>& kept, Real* dx,
                          ProductCalls calls) {
  const int64_t hidden = shape.hidden;
  const int64_t intermediate = shape.intermediate;
  const int64_t rows = rows_of(groups);
  if (rows == 0) return;
  using Group = CudaExpertGroup<Real>;
  Backward<Real> run{queue, groups, calls, nullptr};
  run.pointers = static_cast<void**>(queue.scratch(3 * groups.size() * sizeof(void*)));

  run.add_weight_gradient("experts: w2 gradient", intermediate, hidden, dy, kept.inner,
                          &Group::dw2);
  // inner now becomes its own gradient.
  run.for_all("experts: w2 backward", [&](const Group& group, int64_t row) {
    return PlacedProduct{input_product(group.rows, intermediate, hidden, 0.0f), dy + row * hidden,
                         group.w2, kept.inner + row * intermediate};
  });
  constexpr int kCount = kPackCount<Real>;
  const int64_t count = rows * intermediate;
  const bool packed = packable(count, kCount, kept.gate, kept.up, kept.inner);
  const int64_t packs = count / (packed ? kCount : 1);
  launch(queue, "experts: SwiGLU backward", blocks_for(packs, kBlockThreads), kBlockThreads,
         packed ? swiglu_backward_kernel<Real, kCount> : swiglu_backward_kernel<Real, 1>, packs,
         kept.inner, kept.gate, kept.up);
  run.add_weight_gradient("experts: w1 gradient", hidden, intermediate, kept.gate, x, &Group::dw1);
  run.add_weight_gradient("experts: w3 gradient", hidden, intermediate, kept.up, x, &Group::dw3);
  run.for_all("experts: w1 backward", [&](const Group& group, int64_t row) {
    return PlacedProduct{input_product(group.rows, hidden, intermediate, 0.0f),
                         kept.gate + row * intermediate, group.w1, dx + row * hidden};
  });
  run.for_all("experts: w3 backward", [&](const Group& group, int64_t row) {
    return PlacedProduct{input_product(group.rows, hidden, intermediate, 1.0f),
                         kept.up + row * intermediate, group.w3, dx + row * hidden};
  });
}

template void expert_gemm_forward<float>(CudaQueue&, const ExpertShape&,
                                         std::span<const CudaExpertGroup<float>>, const float*,
                                         const CudaExpertActivations<float>&, float*, ProductCalls);
template void expert_gemm_forward<Bf16>(CudaQueue&, const ExpertShape&,
                                        std::span<const CudaExpertGroup<Bf16>>, const Bf16*,
                                        const CudaExpertActivations<Bf16>&, Bf16*, ProductCalls);
template void expert_gemm_backward<float>(CudaQueue&, const ExpertShape&,
                                          std::span<const CudaExpertGroup<float>>, const float*,
                                          const float*, const CudaExpertActivations<float>&, float*,
                                          ProductCalls);
template void expert_gemm_backward<Bf16>(CudaQueue&, const ExpertShape&,
                                         std::span<const CudaExpertGroup<Bf16>>, const Bf16*,
                                         const Bf16*, const CudaExpertActivations<Bf16>&, Bf16*,
                                         ProductCalls);

}  // namespace ckpt::kernels
