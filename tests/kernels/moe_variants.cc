#include "tests/kernels/moe_variants.h"

#include <numeric>

namespace ckpt::kernels {
namespace {

// What the gate leaves for backward.
struct Gate {
  explicit Gate(const GateShape& gate_shape)
      : shape(gate_shape),
        probabilities(device_array<float>(shape.tokens * shape.experts)),
        choice(device_array<int32_t>(shape.tokens * shape.top_k)) {}
  void forward(CudaQueue& queue, const float* logits, float* weight) const {
    gate_topk_forward(queue, shape, logits, probabilities.data(), choice.data(), weight);
  }

  GateShape shape;
  DeviceArray<float> probabilities;
  DeviceArray<int32_t> choice;
};

CudaVariant gate_on_gpu(const GateShape& shape) {
  CudaVariant variant = cuda_variant<float>();
  variant.inputs = variant.gradients = {Type::kFloat};
  const int64_t weights = shape.tokens * shape.top_k;
  // The second part of the output, sums over tokens, is no kernel's: the host adds it up.
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    const Gate gate(shape);
    gate.forward(queue, x[0], y);
    std::vector<float> p(gate.probabilities.size());
    std::vector<float> sums(static_cast<size_t>(shape.experts), 0.0f);
    const size_t bytes = p.size() * sizeof(float);
    const Status got = download(queue, p.data(), gate.probabilities.data(), bytes);
    CKPT_ASSERT_MSG(got.ok(), got.error().message);
    for (size_t i = 0; i < p.size(); ++i) sums[i % sums.size()] += p[i];
    queue.upload(y.as<float>() + weights, sums.data(), sums.size() * sizeof(float));
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped dy,
                         const std::vector<Untyped>& d) {
    const Gate gate(shape);
    const auto weight = device_array<float>(weights);
    gate.forward(queue, x[0], weight.data());
    gate_topk_backward(queue, shape, dy, dy.as<float>() + weights, gate.probabilities.data(),
                       gate.choice.data(), weight.data(), d[0]);
  };
  return variant;
}

template <typename Real>
CudaVariant permute_on_gpu(const PermuteShape& shape, const std::vector<int64_t>& position) {
  CudaVariant variant = cuda_variant<Real>();
  variant.tolerance = 0;              // copies
  variant.gradient_tolerance = 1e-5;  // sums in fp32 of what is given
  variant.inputs = {type_of<Real>()};
  variant.output = type_of<Real>();
  variant.gradients = {Type::kFloat};
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    const auto at = device_array(queue, position);
    permute_forward<Real>(queue, shape, x[0], at.data(), y);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>&, Untyped dy,
                         const std::vector<Untyped>& d) {
    const auto at = device_array(queue, position);
    permute_backward<Real>(queue, shape, dy, at.data(), d[0]);
  };
  return variant;
}

template <typename Real>
CudaVariant unpermute_on_gpu(const PermuteShape& shape, const std::vector<int64_t>& position) {
  CudaVariant variant = cuda_variant<Real>();
  variant.tolerance = 2e-6;  // the sum is fp32, whatever the rows are
  variant.inputs = variant.gradients = {type_of<Real>(), Type::kFloat};
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    const auto at = device_array(queue, position);
    unpermute_forward<Real>(queue, shape, x[0], at.data(), x[1], y);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped dy,
                         const std::vector<Untyped>& d) {
    const auto at = device_array(queue, position);
    unpermute_backward<Real>(queue, shape, dy, x[0], at.data(), x[1], d[0], d[1]);
  };
  return variant;
}

template <typename Real>
struct Experts {
  Experts(const ExpertShape& expert_shape, const std::vector<int64_t>& expert_rows)
      : shape(expert_shape), rows(expert_rows) {
    total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    gate = device_array<Real>(total * shape.intermediate);
    up = device_array<Real>(total * shape.intermediate);
    inner = device_array<Real>(total * shape.intermediate);
  }
  CudaExpertActivations<Real> kept() const { return {gate.data(), up.data(), inner.data()}; }
  // Inputs: x, then the w1 of all experts, all w2, all w3; so are the gradients.
  std::vector<CudaExpertGroup<Real>> groups(const std::vector<Untyped>& x,
                                            const std::vector<Untyped>* d) const {
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

  ExpertShape shape;
  std::vector<int64_t> rows;
  int64_t total = 0;
  DeviceArray<Real> gate, up, inner;
};

template <typename Real>
CudaVariant experts_on_gpu(const ExpertShape& shape, const std::vector<int64_t>& rows) {
  CudaVariant variant = cuda_variant<Real>();
  // Gate, up, inner and y are rounded one after the other, by 2^-9 at most, the gate on the steep
  // side of SiLU.
  if (type_of<Real>() == Type::kBf16) variant.tolerance = 1e-2;
  variant.inputs = std::vector<Type>(4, type_of<Real>());
  variant.output = type_of<Real>();
  variant.gradients = {type_of<Real>(), Type::kFloat, Type::kFloat, Type::kFloat};
  variant.forward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped y) {
    const Experts<Real> experts(shape, rows);
    expert_gemm_forward<Real>(queue, shape, experts.groups(x, nullptr), x[0], experts.kept(), y);
  };
  variant.backward = [=](CudaQueue& queue, const std::vector<Untyped>& x, Untyped dy,
                         const std::vector<Untyped>& d) {
    const Experts<Real> experts(shape, rows);
    const auto groups = experts.groups(x, &d);
    const auto y = device_array<Real>(experts.total * shape.hidden);
    expert_gemm_forward<Real>(queue, shape, groups, x[0], experts.kept(), y.data());
    expert_gemm_backward<Real>(queue, shape, groups, dy, x[0], experts.kept(), d[0]);
  };
  return variant;
}

}  // namespace

std::vector<CudaVariant> gate_variants(const GateShape& shape) { return {gate_on_gpu(shape)}; }
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
  return {experts_on_gpu<float>(shape, rows), experts_on_gpu<Bf16>(shape, rows)};
}

}  // namespace ckpt::kernels
