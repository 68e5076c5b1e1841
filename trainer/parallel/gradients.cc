#include "trainer/parallel/gradients.h"

#include <algorithm>
#include <cmath>

#include "trainer/parallel/replica_gradients.h"

namespace moetrain {
namespace {

// On the host gradients wait in double, in a tensor of their own, and are rounded at the end.
Status reduce_rounding(Comm& comm, std::span<Parameter> bucket, std::vector<double>& buffer) {
  buffer.clear();
  for (const Parameter& parameter : bucket) {
    const std::span<const double> sum = parameter.grad_sum.host<double>();
    buffer.insert(buffer.end(), sum.begin(), sum.end());
  }
  CKPT_TRY(comm.all_reduce_sum(std::span<double>(buffer)));
  auto from = buffer.begin();
  for (Parameter& parameter : bucket) {
    for (float& grad : parameter.grad.host<float>()) grad = static_cast<float>(*from++);
  }
  return {};
}

// Elsewhere they are in their place; the buffer only makes few messages of many.
Status reduce_in_place(Comm& comm, Device& device, std::span<Parameter> bucket, Tensor& buffer) {
  if (comm.size() == 1) return {};
  size_t size = 0;
  for (const Parameter& parameter : bucket) size += parameter.grad.size();
  buffer.reshape(device, Type::kFloat, size);
  std::byte* at = buffer.data();
  for (const Parameter& parameter : bucket) {
    device.copy(at, parameter.grad.data(), parameter.grad.bytes());
    at += parameter.grad.bytes();
  }
  CKPT_TRY(comm.all_reduce_sum(buffer));
  at = buffer.data();
  for (const Parameter& parameter : bucket) {
    device.copy(parameter.grad.data(), at, parameter.grad.bytes());
    at += parameter.grad.bytes();
  }
  return {};
}

// [layer][expert]: the rank that counts it.
std::vector<std::vector<uint32_t>> owners_of_layers(const ExpertPlacement& placement) {
  std::vector<std::vector<uint32_t>> owners;
  owners.reserve(placement.layers());
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    owners.push_back(owners_of_experts(placement, layer));
  }
  return owners;
}

}  // namespace

Status reduce_gradients(Comm& comm, Model& model, uint64_t bucket_bytes) {
  CKPT_TRY(reduce_dense_gradients(comm, model, bucket_bytes));
  return reduce_expert_gradients(comm, model);
}

Status reduce_dense_gradients(Comm& comm, Model& model, uint64_t bucket_bytes) {
  const std::span<Parameter> dense = model.dense();
  const auto bytes_of = [](Parameter& parameter) { return parameter.sum().bytes(); };
  std::vector<double> doubles;
  Tensor floats;
  size_t begin = 0;
  while (begin < dense.size()) {
    size_t end = begin + 1;
    uint64_t bytes = bytes_of(dense[begin]);
    while (end < dense.size() && bytes + bytes_of(dense[end]) <= bucket_bytes) {
      bytes += bytes_of(dense[end++]);
    }
    const std::span<Parameter> bucket = dense.subspan(begin, end - begin);
    if (model.device().grad_sum() == Type::kDouble) {
      CKPT_TRY(reduce_rounding(comm, bucket, doubles));
    } else {
      CKPT_TRY(reduce_in_place(comm, model.device(), bucket, floats));
    }
    begin = end;
  }
  return {};
}

Result<GradientSummary> summarise_gradients(Comm& comm, Model& model) {
  Device& device = model.device();
  Tensor sum(device, Type::kDouble, 1);
  sum.zero();
  const std::vector<std::vector<uint32_t>> owners = owners_of_layers(model.experts().placement());
  for (const Expert& expert : model.experts().owned()) {
    if (owners[expert.layer][expert.expert] != comm.rank()) continue;
    for (const Parameter* parameter : {&expert.w1, &expert.w2, &expert.w3}) {
      device.add_sum_of_squares(parameter->grad, sum);
    }
  }
  double squares = 0;
  const std::span<double> host(&squares, 1);
  CKPT_TRY(sum.read(host));
  CKPT_TRY(comm.all_reduce_sum(host));
  // Dense gradients have the same bits everywhere, so every rank gets the same total. A NaN or an
  // infinity anywhere makes the total one.
  sum.write(std::span<const double>(host));
  for (const Parameter& parameter : model.dense()) device.add_sum_of_squares(parameter.grad, sum);
  CKPT_TRY(sum.read(host));
  return GradientSummary{std::sqrt(squares), std::isfinite(squares)};
}

double clip_factor(double norm, double norm_max) {
  if (norm_max <= 0) return 1;
  return std::min(1.0, norm_max / (norm + 1e-6));
}

}  // namespace moetrain
