// Properties of the gate besides its values: order of equal probabilities, and hostile logits.
#include "kernels/gate_topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace ckpt::kernels {
namespace {

struct Routed {
  std::vector<float> probabilities;
  std::vector<int32_t> choice;
  std::vector<float> weight;
};

Routed route(const GateShape& shape, const std::vector<float>& logits) {
  Routed routed;
  routed.probabilities.resize(logits.size());
  routed.choice.resize(static_cast<size_t>(shape.tokens * shape.top_k), -1);
  routed.weight.resize(routed.choice.size());
  gate_topk_forward(shape, logits.data(), routed.probabilities.data(), routed.choice.data(),
                    routed.weight.data());
  return routed;
}

TEST(GateTopK, EqualProbabilitiesGoToTheLowerExpert) {
  const Routed routed = route({2, 4, 2}, {0, 1, 0, 1, 2, 2, 2, 2});
  EXPECT_EQ(routed.choice, (std::vector<int32_t>{1, 3, 0, 1}));
  EXPECT_EQ(routed.weight, (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f}));
}

TEST(GateTopK, MostProbableComesFirst) {
  const Routed routed = route({1, 5, 3}, {0.1f, 3, -1, 2, 2.5f});
  EXPECT_EQ(routed.choice, (std::vector<int32_t>{1, 4, 3}));
  EXPECT_GT(routed.weight[0], routed.weight[1]);
  EXPECT_GT(routed.weight[1], routed.weight[2]);
}

TEST(GateTopK, LargeLogitsDoNotOverflow) {
  const Routed routed = route({1, 3, 2}, {3e38f, -3e38f, 3e38f});
  EXPECT_EQ(routed.choice, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(routed.weight, (std::vector<float>{0.5f, 0.5f}));
}

// A diverged model must lead to a skipped step, not to an expert out of range.
TEST(GateTopK, NanLogitsStillChooseDistinctExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Routed routed = route({2, 3, 3}, {nan, nan, nan, inf, 1, -inf});
  for (size_t token = 0; token < 2; ++token) {
    std::vector<int32_t> choice(routed.choice.begin() + token * 3,
                                routed.choice.begin() + token * 3 + 3);
    std::sort(choice.begin(), choice.end());
    EXPECT_EQ(choice, (std::vector<int32_t>{0, 1, 2}));
  }
}

}  // namespace
}  // namespace ckpt::kernels
