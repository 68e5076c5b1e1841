#include "tests/kernels/moe_variants.h"

#include <numeric>

namespace ckpt::kernels {
namespace {

CudaVariant gate_on_gpu(const GateShape& shape) {
  CudaVariant variant = cuda_variant<float>();
  variant.inputs = variant.gradients = {Type::kFloat};
  const int64_t weights = shape.tokens * shape.top_k;
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    auto* const p = work.array<float>(shape.tokens * shape.experts);
    auto* const choice = work.array<int32_t>(weights);
    // The second part of the output, sums over tokens, is no kernel's: the host adds it up.
    const auto add_up = [=, &queue] {
      std::vector<float> all(static_cast<size_t>(shape.tokens * shape.experts));
      std::vector<float> sums(static_cast<size_t>(shape.experts), 0.0f);
      const Status got = download(queue, all.data(), p, all.size() * sizeof(float));
      CKPT_ASSERT_MSG(got.ok(), got.error().message);
      for (size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
      queue.upload(y.as<float>() + weights, sums.data(), sums.size() * sizeof(float));
    };
    return {[=, &queue] { gate_topk_forward(queue, shape, x[0], p, choice, y); }, add_up};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped dy,
                         const Arrays& d) -> Prepared {
    auto* const p = work.array<float>(shape.tokens * shape.experts);
    auto* const choice = work.array<int32_t>(weights);
    auto* const weight = work.array<float>(weights);
    gate_topk_forward(queue, shape, x[0], p, choice, weight);
    return {[=, &queue] {
              gate_topk_backward(queue, shape, dy, dy.as<float>() + weights, p, choice, weight,
                                 d[0]);
            },
            {}};
  };
  return variant;
}

template <typename Real>
CudaVariant permute_on_gpu(const PermuteShape& shape, const std::vector<int64_t>& position) {
  CudaVariant variant = cuda_variant<Real>();
  variant.tolerance = 0;              // copies
  variant.gradient_tolerance = 1e-5;  // sums in fp32 of the given values
  variant.inputs = {type_of<Real>()};
  variant.output = type_of<Real>();
  variant.gradients = {Type::kFloat};
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    const int64_t* const at = work.array(queue, position);
    return {[=, &queue] { permute_forward<Real>(queue, shape, x[0], at, y); }, {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays&, Untyped dy,
                         const Arrays& d) -> Prepared {
    const int64_t* const at = work.array(queue, position);
    return {[=, &queue] { permute_backward<Real>(queue, shape, dy, at, d[0]); }, {}};
  };
  return variant;
}

template <typename Real>
CudaVariant unpermute_on_gpu(const PermuteShape& shape, const std::vector<int64_t>& position) {
  CudaVariant variant = cuda_variant<Real>();
  variant.tolerance = 2e-6;  // the sum is fp32 for rows of any type
  variant.inputs = variant.gradients = {type_of<Real>(), Type::kFloat};
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    const int64_t* const at = work.array(queue, position);
    return {[=, &queue] { unpermute_forward<Real>(queue, shape, x[0], at, x[1], y); }, {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped dy,
                         const Arrays& d) -> Prepared {
    const int64_t* const at = work.array(queue, position);
    return {[=, &queue] { unpermute_backward<Real>(queue, shape, dy, x[0], at, x[1], d[0], d[1]); },
            {}};
  };
  return variant;
}

// Inputs: x, then the w1 of all experts, all w2, all w3; so are the gradients, if there are any.
template <typename Real>
std::vector<CudaExpertGroup<Real>> groups_of(const ExpertShape& shape,
                                             const std::vector<int64_t>& rows, const Arrays& x,
                                             const Arrays* d) {
  std::vector<CudaExpertGroup<Real>> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) * shape.hidden * shape.intermediate;
    CudaExpertGroup<Real> group;
    group.rows = rows[i];
    group.w1 = x[1].as<Real>() + at;
    group.w2 = x[2].as<Real>() + at;
    group.w3 = x[3].as<Real>() + at;
    if (d != nullptr) {
      group.dw1 = (*d)[1].as<float>() + at;
      group.dw2 = (*d)[2].as<float>() + at;
      group.dw3 = (*d)[3].as<float>() + at;
    }
    all.push_back(group);
  }
  return all;
}

template <typename Real>
CudaExpertActivations<Real> activations(Workspace& work, const ExpertShape& shape, int64_t rows) {
  const int64_t count = rows * shape.intermediate;
  return {work.array<Real>(count), work.array<Real>(count), work.array<Real>(count)};
}

template <typename Real>
CudaVariant experts_on_gpu(const ExpertShape& shape, const std::vector<int64_t>& rows,
                           ProductCalls calls) {
  CudaVariant variant = cuda_variant<Real>();
  // Gate, up, inner and y are rounded one after the other, by 2^-9 at most, the gate on the steep
  // side of SiLU.
  if (type_of<Real>() == Type::kBf16) variant.tolerance = variant.gradient_tolerance = 1e-2;
  variant.inputs = std::vector<Type>(4, type_of<Real>());
  variant.output = type_of<Real>();
  variant.gradients = {type_of<Real>(), Type::kFloat, Type::kFloat, Type::kFloat};
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  variant.forward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped y) -> Prepared {
    const auto groups = groups_of<Real>(shape, rows, x, nullptr);
    const auto kept = activations<Real>(work, shape, total);
    return {[=, &queue] { expert_gemm_forward<Real>(queue, shape, groups, x[0], kept, y, calls); },
            {}};
  };
  variant.backward = [=](CudaQueue& queue, Workspace& work, const Arrays& x, Untyped dy,
                         const Arrays& d) -> Prepared {
    const auto groups = groups_of<Real>(shape, rows, x, &d);
    const auto kept = activations<Real>(work, shape, total);
    auto* const y = work.array<Real>(total * shape.hidden);
    expert_gemm_forward<Real>(queue, shape, groups, x[0], kept, y);
    return {[=, &queue] {
              expert_gemm_backward<Real>(queue, shape, groups, dy, x[0], kept, d[0], calls);
            },
            {}};
  };
  return variant;
}

}  // namespace

std::vector<CudaVariant> gate_variants(const GateShape& shape) {
  return {gate_on_gpu(shape), unaligned(gate_on_gpu(shape))};
}
std::vector<CudaVariant> permute_variants(const PermuteShape& shape,
                                          const std::vector<int64_t>& position) {
  return {permute_on_gpu<float>(shape, position), permute_on_gpu<Bf16>(shape, position)};
}
std::vector<CudaVariant> unpermute_variants(const PermuteShape& shape,
                                            const std::vector<int64_t>& position) {
  return {unpermute_on_gpu<float>(shape, position), unpermute_on_gpu<Bf16>(shape, position)};
}
std::vector<CudaVariant> expert_variants(const ExpertShape& shape,
                                         const std::vector<int64_t>& rows) {
  const auto by = [&](ProductCalls calls, const char* name, const char* timed_as) {
    CudaVariant variant = experts_on_gpu<Bf16>(shape, rows, calls);
    variant.name += name;
    variant.timed_as = timed_as;
    return variant;
  };
  return {experts_on_gpu<float>(shape, rows, ProductCalls::kByShape),
          experts_on_gpu<Bf16>(shape, rows, ProductCalls::kByShape),
          by(ProductCalls::kOneByOne, "_one_by_one", "one by one"),
          by(ProductCalls::kGrouped, "_grouped", "grouped")};
}

}  // namespace ckpt::kernels
