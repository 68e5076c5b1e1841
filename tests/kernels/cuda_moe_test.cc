// What the MoE kernels promise on a GPU beyond the values of their cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/expert_gemm.h"
#include "kernels/gate_topk.h"
#include "kernels/permute.h"
#include "tests/kernels/cuda_fixture.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CudaMoeTest : public CudaTest {
 protected:
  template <typename T>
  DeviceArray<T> write(const std::vector<T>& content) {
    return device_array(*queue_, content);
  }

  struct Routed {
    std::vector<float> probabilities;
    std::vector<int32_t> choice;
    std::vector<float> weight;
  };
  // In place: the probabilities replace the logits.
  Routed route(const GateShape& shape, const std::vector<float>& logits) {
    const auto p = write(logits);
    const auto choice = device_array<int32_t>(shape.tokens * shape.top_k);
    const auto weight = device_array<float>(shape.tokens * shape.top_k);
    gate_topk_forward(*queue_, shape, p.data(), p.data(), choice.data(), weight.data());
    return {read(p), read(choice), read(weight)};
  }
};

TEST_F(CudaMoeTest, EqualProbabilitiesGoToTheLowerExpert) {
  const Routed few = route({2, 4, 2}, {0, 1, 0, 1, 2, 2, 2, 2});
  EXPECT_EQ(few.choice, (std::vector<int32_t>{1, 3, 0, 1}));
  EXPECT_EQ(few.weight, (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f}));
  std::vector<float> logits(70, 1.0f);
  logits[40] = logits[66] = 2;  // ties within and across lanes
  EXPECT_EQ(route({1, 70, 4}, logits).choice, (std::vector<int32_t>{40, 66, 0, 1}));
}

TEST_F(CudaMoeTest, TheGateChoosesAsOnTheCpu) {
  const GateShape shape{37, 1024, 16};
  std::vector<float> logits(static_cast<size_t>(shape.tokens * shape.experts));
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i * 7919 % 211) / 50;  // many ties
  }
  std::vector<float> p(logits.size());
  std::vector<int32_t> choice(static_cast<size_t>(shape.tokens * shape.top_k));
  std::vector<float> weight(choice.size());
  gate_topk_forward(shape, logits.data(), p.data(), choice.data(), weight.data());
  EXPECT_EQ(route(shape, logits).choice, choice);
}

TEST_F(CudaMoeTest, AllExpertsCanBeChosen) {
  const Routed routed = route({1, 32, 32}, std::vector<float>(32, 0.25f));
  std::vector<int32_t> all(32);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(routed.choice, all);
  EXPECT_EQ(routed.weight, std::vector<float>(32, 1.0f / 32));
}

TEST_F(CudaMoeTest, LargeLogitsDoNotOverflow) {
  const Routed routed = route({1, 3, 2}, {3e38f, -3e38f, 3e38f});
  EXPECT_EQ(routed.choice, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(routed.weight, (std::vector<float>{0.5f, 0.5f}));
}

TEST_F(CudaMoeTest, NanLogitsChooseTheFirstExperts) {
  for (const std::vector<float>& logits : {std::vector<float>{kNan, kNan, kNan},
                                           {1, 2, kNan},
                                           {kInfinity, 1, -kInfinity},
                                           {-kInfinity, -kInfinity, -kInfinity}}) {
    const Routed routed = route({1, 3, 2}, logits);
    EXPECT_EQ(routed.choice, (std::vector<int32_t>{0, 1}));
    for (const float p : routed.probabilities) EXPECT_TRUE(std::isnan(p));
    for (const float w : routed.weight) EXPECT_TRUE(std::isnan(w));
  }
}

TEST_F(CudaMoeTest, NoTokens) {
  EXPECT_TRUE(route({0, 8, 2}, {}).choice.empty());
  const auto none = device_array<float>(0);
  const auto position = device_array<int64_t>(0);
  const PermuteShape shape{0, 2, 16};
  permute_forward<float>(*queue_, shape, none.data(), position.data(), none.data());
  permute_backward<float>(*queue_, shape, none.data(), position.data(), none.data());
  unpermute_forward<float>(*queue_, shape, none.data(), position.data(), none.data(), none.data());
  unpermute_backward<float>(*queue_, shape, none.data(), none.data(), position.data(), none.data(),
                            none.data(), none.data());
  const std::vector<CudaExpertGroup<Bf16>> groups(3);
  expert_gemm_forward<Bf16>(*queue_, {8, 16}, groups, nullptr, {}, nullptr);
  expert_gemm_backward<Bf16>(*queue_, {8, 16}, groups, nullptr, nullptr, {}, nullptr);
  const AttentionShape attention{0, 4, 2, 1, 8};
  attention_forward<Bf16>(*queue_, attention, nullptr, nullptr, nullptr, nullptr, nullptr);
  attention_backward<Bf16>(*queue_, attention, nullptr, nullptr, nullptr, nullptr, nullptr, {});
  EXPECT_TRUE(synchronize(*queue_).ok());
}

template <typename Real>
std::vector<Real> numbers(int64_t count) {
  std::vector<Real> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(from_float<Real>(static_cast<float>(i % 251) - 125));
  }
  return values;
}
template <typename Real>
std::vector<float> widened(const std::vector<Real>& values) {
  std::vector<float> floats;
  for (const Real value : values) floats.push_back(to_float(value));
  return floats;
}

// Backward as the trainer calls it: the gradients take the place of the rows.
TEST_F(CudaMoeTest, UnpermuteBackwardInPlace) {
  for (const int64_t width : {5, 264}) {
    const PermuteShape shape{4, 2, width};
    const auto position = write(std::vector<int64_t>{3, 0, 7, 1, 2, 6, 4, 5});
    const auto weight = write(numbers<float>(8));
    const auto dout = write(numbers<float>(4 * width));
    const auto rows = write(numbers<Bf16>(8 * width));
    const auto drows = device_array<Bf16>(8 * width);
    const auto dweight = device_array<float>(8);
    unpermute_backward<Bf16>(*queue_, shape, dout.data(), rows.data(), position.data(),
                             weight.data(), drows.data(), dweight.data());
    const std::vector<float> expected_weight = read(dweight);
    unpermute_backward<Bf16>(*queue_, shape, dout.data(), rows.data(), position.data(),
                             weight.data(), rows.data(), dweight.data());
    EXPECT_EQ(widened(read(rows)), widened(read(drows)));
    EXPECT_EQ(read(dweight), expected_weight);
  }
}

template <typename Real>
class CudaRowsTest : public CudaMoeTest {};
using Reals = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(CudaRowsTest, Reals);

TYPED_TEST(CudaRowsTest, GatherThenScatterGivesTheSameRows) {
  for (const int64_t width : {1, 7, 40, 2056}) {
    const std::vector<int64_t> order{4, 1, 5, 0, 2, 3};
    const auto index = this->write(order);
    const auto content = numbers<TypeParam>(6 * width);
    const auto from = this->write(content);
    const auto gathered = device_array<TypeParam>(6 * width);
    const auto back = device_array<TypeParam>(6 * width);
    gather_rows<TypeParam>(*this->queue_, 6, width, index.data(), from.data(), gathered.data());
    scatter_rows<TypeParam>(*this->queue_, 6, width, index.data(), gathered.data(), back.data());
    const std::vector<float> original = widened(content);
    std::vector<float> expected;
    for (const int64_t row : order) {
      expected.insert(expected.end(), original.begin() + row * width,
                      original.begin() + (row + 1) * width);
    }
    EXPECT_EQ(widened(this->read(gathered)), expected);
    EXPECT_EQ(widened(this->read(back)), original);
  }
}

}  // namespace
}  // namespace ckpt::kernels
