#include "trainer/parallel/gradients.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/parallel/exact_sum.h"

namespace moetrain {
namespace {

// On the host, gradients are summed in double, in a separate tensor, and rounded at the end.
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

// On other devices they are summed in place; the buffer only merges many messages into few.
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

// This rank's part of the experts' sum of squares, matrix by matrix.
Result<double> sum_counted(const Comm& comm, Model& model) {
  Device& device = model.device();
  Tensor sum(device, Type::kDouble, 1);
  sum.zero();
  const Ownership& ownership = model.experts().ownership();
  const uint64_t elements = expert_parameter_count(model.config());
  for (OwnedRange& range : model.experts().owned()) {
    if (ownership.counted(comm.rank(), range.layer, range.expert, elements).empty()) continue;
    for (const ParameterPart& part : parts_of(range, model.config())) {
      device.add_sum_of_squares(range.grad.as<float>() + part.at, part.elements.size(), sum);
    }
  }
  double squares = 0;
  CKPT_TRY(sum.read(std::span<double>(&squares, 1)));
  return squares;
}

// Squares of all experts' gradients, over all ranks. Parts of sharded experts are cut differently
// for another number of ranks, which an exact sum does not notice. A GPU's gradients depend on the
// number of ranks anyway.
Result<double> sum_expert_squares(Comm& comm, Model& model) {
  const bool sharded = model.experts().ownership().state() == ExpertState::kSharded;
  if (sharded && model.device().is_host()) {
    ExactSum sum;
    for (const OwnedRange& range : model.experts().owned()) {
      sum.add_squares(range.grad.host<float>());
    }
    std::array<int64_t, ExactSum::kValues> values = sum.values();
    CKPT_TRY(comm.all_reduce_sum(std::span<int64_t>(values)));
    return ExactSum::total(values);
  }
  CKPT_ASSIGN(double squares, sum_counted(comm, model));
  CKPT_TRY(comm.all_reduce_sum(std::span<double>(&squares, 1)));
  return squares;
}

}  // namespace

Status reduce_gradients(Comm& comm, Model& model, uint64_t bucket_bytes) {
  CKPT_TRY(reduce_dense_gradients(comm, model, bucket_bytes));
  return model.experts().reduce_gradients(comm);
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
  CKPT_ASSIGN(double squares, sum_expert_squares(comm, model));
  // Dense gradients have the same bits everywhere, so every rank gets the same total. A NaN or an
  // infinity anywhere makes the total one.
  Device& device = model.device();
  Tensor sum(device, Type::kDouble, 1);
  sum.write(std::span<const double>(&squares, 1));
  for (const Parameter& parameter : model.dense()) {
    device.add_sum_of_squares(parameter.grad.as<float>(), parameter.grad.size(), sum);
  }
  CKPT_TRY(sum.read(std::span<double>(&squares, 1)));
  return GradientSummary{std::sqrt(squares), std::isfinite(squares)};
}

double clip_factor(double norm, double norm_max) {
  if (norm_max <= 0) return 1;
  return std::min(1.0, norm_max / (norm + 1e-6));
}

}  // namespace moetrain
