#include "tests/kernels/dense_variants.h"

#include <cstddef>

#include "kernels/cast.h"
#include "kernels/embedding.h"

namespace ckpt::kernels {
namespace {

// From device memory, which is there when the call returns.
template <typename T>
std::vector<T> downloaded(CudaQueue& queue, const T* from, size_t count) {
  std::vector<T> here(count);
  const Status got = download(queue, here.data(), from, count * sizeof(T));
  CKPT_ASSERT_MSG(got.ok(), got.error().message);
  return here;
}

template <typename T>
void copy(CudaQueue& queue, const T* from, T* to, int64_t count) {
  const std::vector<T> values = downloaded(queue, from, static_cast<size_t>(count));
  queue.upload(to, values.data(), values.size() * sizeof(T));
}

// A gradient of type `type` as Real. What comes as float is rounded on the way, as a model does
// before a product.
template <typename Real>
const Real* rounded_copy(CudaQueue& queue, Workspace& work, const Untyped& from, int64_t count,
                         Type type) {
  Real* const copied = work.array<Real>(count);
  if (type == type_of<Real>()) {
    copy<Real>(queue, from, copied, count);
  } else if constexpr (std::is_same_v<Real, Bf16>) {
    cast(queue, count, from.as<float>(), copied);
  }
  return copied;
}

template <typename Real, typename Out>
CudaVariant linear_variant(const LinearShape& shape, Write write) {
  CudaVariant variant = cuda_variant<Real>();
  if (type_of<Real>() != type_of<Out>()) variant.name += "_to_fp32";
  variant.inputs = {type_of<Real>(), type_of<Real>()};
  variant.output = type_of<Out>();
  variant.gradients = {type_of<Out>(), Type::kFloat};
  // Products of bf16 numbers are exact in fp32, and their sum is exact except for the rounding of
  // fp32.
  if (type_of<Out>() == Type::kFloat) variant.tolerance = 2e-6;
  variant.forward = [=](CudaQueue& queue, Workspace&, const Arrays& x, Untyped y) -> Prepared {
    return {[=, &queue] { linear_forward<Real, Out>(queue, shape, x[0], x[1], y, write); }, {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped dy,
                         const Arrays& d) -> Prepared {
    const Real* const rounded =
        rounded_copy<Real>(queue, work, dy, shape.rows * shape.out, type_of<Out>());
    return {[=, &queue] {
              linear_backward_input<Real, Out>(queue, shape, rounded, x[1], d[0], write);
              linear_backward_weight<Real>(queue, shape, rounded, x[0], d[1]);
            },
            {}};
  };
  return variant;
}

template <typename Real>
CudaVariant rope_variant(const RopeShape& shape, const std::vector<float>& cosine,
                         const std::vector<float>& sine) {
  const int64_t count = shape.tokens * shape.heads * shape.head_dim;
  CudaVariant variant = cuda_variant<Real>();
  variant.inputs = variant.gradients = {type_of<Real>()};
  variant.output = type_of<Real>();
  if (type_of<Real>() == Type::kFloat) {  // as the CPU's: the table's angles are rounded to fp32
    variant.tolerance = 1e-5;
    variant.gradient_tolerance = 1e-4;
  }
  // Both rotate in place.
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    copy<Real>(queue, x[0], y, count);
    const float* const c = work.array(queue, cosine);
    const float* const s = work.array(queue, sine);
    return {[=, &queue] { rope_forward<Real>(queue, shape, c, s, y); }, {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays&, Untyped dy,
                         const Arrays& d) -> Prepared {
    copy<Real>(queue, dy, d[0], count);
    const float* const c = work.array(queue, cosine);
    const float* const s = work.array(queue, sine);
    return {[=, &queue] { rope_backward<Real>(queue, shape, c, s, d[0]); }, {}};
  };
  return variant;
}

template <typename Real>
CudaVariant cross_entropy_variant(const CrossEntropyShape& shape,
                                  const std::vector<int32_t>& targets, bool in_place) {
  CudaVariant variant = cuda_variant<Real>();
  if (in_place) variant.name += "_in_place";
  variant.tolerance = 2e-6;  // the loss is fp32 in any case
  variant.inputs = {Type::kFloat};
  variant.gradients = {type_of<Real>()};
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    const int32_t* const t = work.array(queue, targets);
    auto* const log_sum_exp = work.array<float>(shape.rows);
    auto* const sum = work.array<CrossEntropySum>(1);
    return {[=, &queue] { cross_entropy_forward(queue, shape, x[0], t, log_sum_exp, sum); },
            [=, &queue] {
              const auto loss = static_cast<float>(downloaded(queue, sum, 1)[0].loss);
              queue.upload(y.as<float>(), &loss, sizeof loss);
            }};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped dy,
                         const Arrays& d) -> Prepared {
    const int32_t* const t = work.array(queue, targets);
    auto* const kept = work.array<float>(shape.rows);
    cross_entropy_forward(queue, shape, x[0], t, kept, work.array<CrossEntropySum>(1));
    const float scale = downloaded<float>(queue, dy, 1)[0];
    const float* logits = x[0];
    if constexpr (std::is_same_v<Real, float>) {
      if (in_place) {
        copy<float>(queue, logits, d[0], shape.rows * shape.vocab);
        logits = d[0];
      }
    }
    return {
        [=, &queue] { cross_entropy_backward<Real>(queue, shape, scale, logits, t, kept, d[0]); },
        {}};
  };
  return variant;
}

}  // namespace

std::vector<CudaVariant> linear_on_gpu(const LinearShape& shape, Write write) {
  return {linear_variant<float, float>(shape, write), linear_variant<Bf16, Bf16>(shape, write),
          linear_variant<Bf16, float>(shape, write)};
}

std::vector<CudaVariant> rope_on_gpu(const RopeShape& shape, const std::vector<float>& cosine,
                                     const std::vector<float>& sine) {
  return {rope_variant<float>(shape, cosine, sine), rope_variant<Bf16>(shape, cosine, sine),
          unaligned(rope_variant<Bf16>(shape, cosine, sine))};
}

std::vector<CudaVariant> embedding_on_gpu(int64_t width, int64_t vocab,
                                          const std::vector<int32_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  CudaVariant variant = cuda_variant<float>();
  variant.inputs = variant.gradients = {Type::kFloat};
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    const int32_t* const t = work.array(queue, tokens);
    return {[=, &queue] { embedding_forward(queue, count, width, t, x[0], y); }, {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays&, Untyped dy,
                         const Arrays& d) -> Prepared {
    const int32_t* const t = work.array(queue, tokens);
    return {[=, &queue] { embedding_backward(queue, count, width, vocab, t, dy, d[0]); }, {}};
  };
  return {variant, unaligned(variant)};
}

std::vector<CudaVariant> cross_entropy_on_gpu(const CrossEntropyShape& shape,
                                              const std::vector<int32_t>& targets) {
  return {cross_entropy_variant<float>(shape, targets, false),
          cross_entropy_variant<float>(shape, targets, true),
          cross_entropy_variant<Bf16>(shape, targets, false)};
}

}  // namespace ckpt::kernels
