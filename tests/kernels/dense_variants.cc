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

// A result of type Real, given as what a variant has: float or Real. A gradient that comes as float
// is rounded on the way, as a model does before a product.
template <typename Real>
DeviceArray<Real> rounded_copy(CudaQueue& queue, const Untyped& from, int64_t count, Type type) {
  DeviceArray<Real> copied = device_array<Real>(count);
  if (type == type_of<Real>()) {
    copy<Real>(queue, from, copied.data(), count);
  } else if constexpr (std::is_same_v<Real, Bf16>) {
    cast(queue, count, from.as<float>(), copied.data());
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
  // Products of bf16 numbers are exact in fp32, and so is what they add up to but for fp32's own
  // rounding.
  if (type_of<Out>() == Type::kFloat) variant.tolerance = 2e-6;
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    linear_forward<Real, Out>(queue, shape, x[0], x[1], y, write);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped dy,
                         const std::vector<Untyped>& d) {
    const auto rounded = rounded_copy<Real>(queue, dy, shape.rows * shape.out, type_of<Out>());
    linear_backward_input<Real, Out>(queue, shape, rounded.data(), x[1], d[0], write);
    linear_backward_weight<Real>(queue, shape, rounded.data(), x[0], d[1]);
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
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    copy<Real>(queue, x[0], y, count);
    const auto c = device_array(queue, cosine);
    const auto s = device_array(queue, sine);
    rope_forward<Real>(queue, shape, c.data(), s.data(), y);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>&, Untyped dy,
                         const std::vector<Untyped>& d) {
    copy<Real>(queue, dy, d[0], count);
    const auto c = device_array(queue, cosine);
    const auto s = device_array(queue, sine);
    rope_backward<Real>(queue, shape, c.data(), s.data(), d[0]);
  };
  return variant;
}

// What one row after the other kept, and their sum as the case's output.
DeviceArray<float> cross_entropy(CudaQueue& queue, const CrossEntropyShape& shape,
                                 const float* logits, const int32_t* targets, float* loss) {
  auto log_sum_exp = device_array<float>(shape.rows);
  const auto sum = device_array<CrossEntropySum>(1);
  cross_entropy_forward(queue, shape, logits, targets, log_sum_exp.data(), sum.data());
  if (loss != nullptr) {
    const auto value = static_cast<float>(downloaded(queue, sum.data(), 1)[0].loss);
    queue.upload(loss, &value, sizeof value);
  }
  return log_sum_exp;
}

template <typename Real>
CudaVariant cross_entropy_variant(const CrossEntropyShape& shape,
                                  const std::vector<int32_t>& targets, bool in_place) {
  CudaVariant variant = cuda_variant<Real>();
  if (in_place) variant.name += "_in_place";
  variant.tolerance = 2e-6;  // the loss is fp32 in any case
  variant.inputs = {Type::kFloat};
  variant.gradients = {type_of<Real>()};
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    const auto t = device_array(queue, targets);
    cross_entropy(queue, shape, x[0], t.data(), y);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped dy,
                         const std::vector<Untyped>& d) {
    const auto t = device_array(queue, targets);
    const auto log_sum_exp = cross_entropy(queue, shape, x[0], t.data(), nullptr);
    const float scale = downloaded<float>(queue, dy, 1)[0];
    const float* logits = x[0];
    if constexpr (std::is_same_v<Real, float>) {
      if (in_place) {
        copy<float>(queue, logits, d[0], shape.rows * shape.vocab);
        logits = d[0];
      }
    }
    cross_entropy_backward<Real>(queue, shape, scale, logits, t.data(), log_sum_exp.data(), d[0]);
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
  return {rope_variant<float>(shape, cosine, sine), rope_variant<Bf16>(shape, cosine, sine)};
}

std::vector<CudaVariant> embedding_on_gpu(int64_t width, int64_t vocab,
                                          const std::vector<int32_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  CudaVariant variant = cuda_variant<float>();
  variant.inputs = variant.gradients = {Type::kFloat};
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    const auto t = device_array(queue, tokens);
    embedding_forward(queue, count, width, t.data(), x[0], y);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>&, Untyped dy,
                         const std::vector<Untyped>& d) {
    const auto t = device_array(queue, tokens);
    embedding_backward(queue, count, width, vocab, t.data(), dy, d[0]);
  };
  return {variant};
}

std::vector<CudaVariant> cross_entropy_on_gpu(const CrossEntropyShape& shape,
                                              const std::vector<int32_t>& targets) {
  return {cross_entropy_variant<float>(shape, targets, false),
          cross_entropy_variant<float>(shape, targets, true),
          cross_entropy_variant<Bf16>(shape, targets, false)};
}

}  // namespace ckpt::kernels
