#include "tests/kernels/attention_variant.h"

namespace ckpt::kernels {
namespace {

template <typename Real>
CudaVariant attention_on_gpu(const AttentionShape& shape, int64_t score_bytes_max) {
  CudaVariant variant = cuda_variant<Real>();
  variant.inputs = variant.gradients = std::vector<Type>(3, type_of<Real>());
  variant.output = type_of<Real>();
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    auto* const p = work.array<Real>(shape.probability_count());
    return {[=, &queue] {
              attention_forward<Real>(queue, shape, x[0], x[1], x[2], p, y, score_bytes_max);
            },
            {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped dy,
                         const Arrays& d) -> Prepared {
    auto* const p = work.array<Real>(shape.probability_count());
    auto* const y = work.array<Real>(shape.tokens() * shape.heads * shape.head_dim);
    attention_forward<Real>(queue, shape, x[0], x[1], x[2], p, y, score_bytes_max);
    return {[=, &queue] {
              attention_backward<Real>(queue, shape, dy, x[0], x[1], x[2], p, {d[0], d[1], d[2]},
                                       score_bytes_max);
            },
            {}};
  };
  return variant;
}

}  // namespace

// With more than two key heads, also tests slabs of two heads: usual slabs hold all heads in cases
// as small as these.
std::vector<CudaVariant> attention_variants(const AttentionShape& shape) {
  std::vector<CudaVariant> variants = {
      attention_on_gpu<float>(shape, kAttentionScoreBytesMax),
      attention_on_gpu<Bf16>(shape, kAttentionScoreBytesMax),
  };
  if (shape.sequences * shape.kv_heads <= 2) return variants;
  const int64_t key_head = shape.heads / shape.kv_heads * shape.seq_len * shape.seq_len;
  const int64_t small_slab = 2 * key_head * int64_t{sizeof(float)};
  variants.push_back(attention_on_gpu<float>(shape, small_slab));
  variants.push_back(attention_on_gpu<Bf16>(shape, small_slab));
  variants[2].name += "_small_slabs";
  variants[3].name += "_small_slabs";
  return variants;
}

}  // namespace ckpt::kernels
