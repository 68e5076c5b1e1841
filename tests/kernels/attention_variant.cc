#include "tests/kernels/attention_variant.h"

namespace ckpt::kernels {
namespace {

template <typename Real>
CudaVariant attention_on_gpu(const AttentionShape& shape) {
  CudaVariant variant = cuda_variant<Real>();
  variant.inputs = variant.gradients = std::vector<Type>(3, type_of<Real>());
  variant.output = type_of<Real>();
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    const auto p = device_array<Real>(shape.probability_count());
    attention_forward<Real>(queue, shape, x[0], x[1], x[2], p.data(), y);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped dy,
                         const std::vector<Untyped>& d) {
    const auto p = device_array<Real>(shape.probability_count());
    const auto y = device_array<Real>(shape.tokens() * shape.heads * shape.head_dim);
    attention_forward<Real>(queue, shape, x[0], x[1], x[2], p.data(), y.data());
    attention_backward<Real>(queue, shape, dy, x[0], x[1], x[2], p.data(), {d[0], d[1], d[2]});
  };
  return variant;
}

}  // namespace

std::vector<CudaVariant> attention_variants(const AttentionShape& shape) {
  return {attention_on_gpu<float>(shape), attention_on_gpu<Bf16>(shape)};
}

}  // namespace ckpt::kernels
