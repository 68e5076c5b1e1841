#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ckpt::kernels {
namespace {

constexpr uint64_t kSeed = 7;

struct State {
  std::vector<double> value, m, v;
};

// The paper's update (arXiv:1711.05101, algorithm 2) in double.
void update_reference(const AdamWStep& s, const std::vector<float>& grad, State& state) {
  const double bias1 = 1 - std::pow(s.beta1, static_cast<double>(s.step));
  const double bias2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = s.gradient_factor * static_cast<double>(grad[i]);
    state.m[i] = s.beta1 * state.m[i] + (1 - s.beta1) * g;
    state.v[i] = s.beta2 * state.v[i] + (1 - s.beta2) * g * g;
    state.value[i] -= s.learning_rate * s.weight_decay * state.value[i];
    state.value[i] -=
        s.learning_rate * (state.m[i] / bias1) / (std::sqrt(state.v[i] / bias2) + s.eps);
  }
}

double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / size);
}

TEST(AdamW, FollowsTheReferenceOverManySteps) {
  constexpr size_t kCount = 101;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> value(kCount), m(kCount, 0.0f), v(kCount, 0.0f), grad(kCount);
  for (float& x : value) x = normal(random);
  State expected{
      {value.begin(), value.end()}, std::vector<double>(kCount), std::vector<double>(kCount)};
  for (uint64_t step = 1; step <= 50; ++step) {
    for (float& g : grad) g = normal(random);
    const AdamWStep s{
        .learning_rate = 1e-2, .weight_decay = 0.1, .gradient_factor = 0.7, .step = step};
    adamw_update(s, kCount, grad.data(), value.data(), m.data(), v.data());
    update_reference(s, grad, expected);
  }
  EXPECT_LT(relative_error(value, expected.value), 2e-6) << "seed " << kSeed;
  EXPECT_LT(relative_error(m, expected.m), 2e-6);
  EXPECT_LT(relative_error(v, expected.v), 2e-6);
}

TEST(AdamW, WithoutGradientOnlyDecays) {
  std::vector<float> value{2.0f}, m{0.0f}, v{0.0f};
  const std::vector<float> grad{0.0f};
  adamw_update({.learning_rate = 0.1, .weight_decay = 0.5}, 1, grad.data(), value.data(), m.data(),
               v.data());
  EXPECT_FLOAT_EQ(value[0], 1.9f);
  EXPECT_EQ(m[0], 0.0f);
  EXPECT_EQ(v[0], 0.0f);
}

// Snapshots and restores cut tensors anywhere; the update must not see the cut.
TEST(AdamW, SplitUpdateGivesSameBits) {
  constexpr size_t kCount = 37;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> value(kCount), grad(kCount), m(kCount), v(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    value[i] = normal(random);
    grad[i] = normal(random);
    m[i] = normal(random);
    v[i] = std::abs(normal(random));
  }
  auto split = value;
  auto split_m = m, split_v = v;
  const AdamWStep s{.learning_rate = 1e-3, .weight_decay = 0.1, .step = 3};
  adamw_update(s, kCount, grad.data(), value.data(), m.data(), v.data());
  adamw_update(s, 5, grad.data(), split.data(), split_m.data(), split_v.data());
  adamw_update(s, kCount - 5, grad.data() + 5, split.data() + 5, split_m.data() + 5,
               split_v.data() + 5);
  EXPECT_EQ(value, split);
  EXPECT_EQ(m, split_m);
  EXPECT_EQ(v, split_v);
}

}  // namespace
}  // namespace ckpt::kernels
