#include "trainer/parallel/gradients.h"

#include <algorithm>
#include <cmath>

namespace moetrain {
namespace {

// Eight running sums in double: exact enough that the norm does not depend on how experts are
// spread over ranks beyond rounding, and fast enough to run every step.
double sum_of_squares(std::span<const float> values) {
  constexpr size_t kLanes = 8;
  double lane[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      lane[j] += static_cast<double>(values[i + j]) * static_cast<double>(values[i + j]);
    }
  }
  for (size_t j = 0; i + j < values.size(); ++j) {
    lane[j] += static_cast<double>(values[i + j]) * static_cast<double>(values[i + j]);
  }
  double total = 0;
  for (const double part : lane) total += part;
  return total;
}

Status reduce_bucket(Comm& comm, std::span<Parameter> bucket, std::vector<double>& buffer) {
  buffer.clear();
  for (const Parameter& parameter : bucket) {
    buffer.insert(buffer.end(), parameter.grad_sum.begin(), parameter.grad_sum.end());
  }
  CKPT_TRY(comm.all_reduce_sum(std::span<double>(buffer)));
  auto from = buffer.begin();
  for (Parameter& parameter : bucket) {
    for (float& grad : parameter.grad) grad = static_cast<float>(*from++);
  }
  return {};
}

}  // namespace

Status reduce_dense_gradients(Comm& comm, Model& model, uint64_t bucket_bytes) {
  const std::span<Parameter> dense = model.dense();
  const auto bytes_of = [](const Parameter& parameter) {
    return parameter.grad_sum.size() * sizeof(double);
  };
  std::vector<double> buffer;
  size_t begin = 0;
  while (begin < dense.size()) {
    size_t end = begin + 1;
    uint64_t bytes = bytes_of(dense[begin]);
    while (end < dense.size() && bytes + bytes_of(dense[end]) <= bucket_bytes) {
      bytes += bytes_of(dense[end++]);
    }
    CKPT_TRY(reduce_bucket(comm, dense.subspan(begin, end - begin), buffer));
    begin = end;
  }
  return {};
}

Result<GradientSummary> summarise_gradients(Comm& comm, Model& model) {
  double expert_squares = 0;
  for (const Expert& expert : model.experts().owned()) {
    expert_squares += sum_of_squares(expert.w1.grad);
    expert_squares += sum_of_squares(expert.w2.grad);
    expert_squares += sum_of_squares(expert.w3.grad);
  }
  CKPT_TRY(comm.all_reduce_sum(std::span<double>(&expert_squares, 1)));
  // Dense gradients have the same bits everywhere, so every rank gets the same total. A NaN or an
  // infinity anywhere makes the total one: squares of finite floats cannot overflow a double.
  double squares = expert_squares;
  for (const Parameter& parameter : model.dense()) squares += sum_of_squares(parameter.grad);
  return GradientSummary{std::sqrt(squares), std::isfinite(squares)};
}

double clip_factor(double norm, double norm_max) {
  if (norm_max <= 0) return 1;
  return std::min(1.0, norm_max / (norm + 1e-6));
}

}  // namespace moetrain
