// Properties of the MoE kernels on a GPU besides the values of their cases.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/expert_gemm.h"
#include "kernels/gate_topk.h"
#include "kernels/permute.h"
#include "tests/kernels/checker.h"
#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<float> probabilities;
  std::vector<int32_t> choice;
  std::vector<float> weight;
};
// Runs in place: the probabilities replace the logits.
Routed route(Checker& c, const GateShape& shape, const std::vector<float>& logits) {
  const auto p = device_array(c.queue(), logits);
  const auto choice = device_array<int32_t>(shape.tokens * shape.top_k);
  const auto weight = device_array<float>(shape.tokens * shape.top_k);
  gate_topk_forward(c.queue(), shape, p.data(), p.data(), choice.data(), weight.data());
  return {c.read(p), c.read(choice), c.read(weight)};
}

void equal_probabilities_go_to_the_lower_expert(Checker& c) {
  const Routed few = route(c, {2, 4, 2}, {0, 1, 0, 1, 2, 2, 2, 2});
  c.expect_equal(few.choice, {1, 3, 0, 1}, "the choice");
  c.expect_equal(few.weight, {0.5f, 0.5f, 0.5f, 0.5f}, "the weight");
  std::vector<float> logits(70, 1.0f);
  logits[40] = logits[66] = 2;  // ties within and across lanes
  c.expect_equal(route(c, {1, 70, 4}, logits).choice, {40, 66, 0, 1}, "ties across lanes");
}

// Numbers of experts just below, at and above the capacity of each layout of the kernel.
constexpr int64_t kExperts[] = {1,  2,  3,  4,   5,   8,   9,   16,  17,  31,  32,  33,
                                63, 64, 65, 128, 129, 255, 256, 257, 511, 512, 513, 1024};

void the_gate_chooses_as_on_the_cpu(Checker& c) {
  for (const int64_t experts : kExperts) {
    const int64_t top_k = std::min(experts, kCudaGateTopKMax);
    c.now("the best " + std::to_string(top_k) + " of " + std::to_string(experts));
    const GateShape shape{37, experts, top_k};
    std::vector<float> logits(static_cast<size_t>(shape.tokens * shape.experts));
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(i * 7919 % 211) / 50;  // many ties
    }
    std::vector<float> p(logits.size());
    std::vector<int32_t> choice(static_cast<size_t>(shape.tokens * shape.top_k));
    std::vector<float> weight(choice.size());
    gate_topk_forward(shape, logits.data(), p.data(), choice.data(), weight.data());
    c.expect_equal(route(c, shape, logits).choice, choice, "the choice");
  }
}

void one_nan_makes_its_token_choose_the_first_experts(Checker& c) {
  for (const int64_t experts : kExperts) {
    const int64_t top_k = std::min<int64_t>(experts, 3);
    c.now(std::to_string(experts) + " experts");
    std::vector<float> logits(static_cast<size_t>(3 * experts), 0.5f);
    const auto last = static_cast<size_t>(experts) - 1;
    logits[last] = 1;
    logits[2 * static_cast<size_t>(experts) - 1] = kNan;  // of the second token
    logits[3 * static_cast<size_t>(experts) - 1] = 1;
    std::vector<int32_t> best{static_cast<int32_t>(last)};
    std::vector<int32_t> first(static_cast<size_t>(top_k));
    std::iota(first.begin(), first.end(), 0);
    best.insert(best.end(), first.begin(), first.end() - 1);
    std::vector<int32_t> expected = best;
    expected.insert(expected.end(), first.begin(), first.end());
    expected.insert(expected.end(), best.begin(), best.end());
    c.expect_equal(route(c, {3, experts, top_k}, logits).choice, expected, "the choice");
  }
}

void all_experts_can_be_chosen(Checker& c) {
  const Routed routed = route(c, {1, 32, 32}, std::vector<float>(32, 0.25f));
  std::vector<int32_t> all(32);
  std::iota(all.begin(), all.end(), 0);
  c.expect_equal(routed.choice, all, "the choice");
  c.expect_equal(routed.weight, std::vector<float>(32, 1.0f / 32), "the weights");
}

void large_logits_do_not_overflow(Checker& c) {
  const Routed routed = route(c, {1, 3, 2}, {3e38f, -3e38f, 3e38f});
  c.expect_equal(routed.choice, {0, 2}, "the choice");
  c.expect_equal(routed.weight, {0.5f, 0.5f}, "the weight");
}

void nan_logits_choose_the_first_experts(Checker& c) {
  for (const std::vector<float>& logits : {std::vector<float>{kNan, kNan, kNan},
                                           {1, 2, kNan},
                                           {kInfinity, 1, -kInfinity},
                                           {-kInfinity, -kInfinity, -kInfinity}}) {
    const Routed routed = route(c, {1, 3, 2}, logits);
    c.expect_equal(routed.choice, {0, 1}, "the choice");
    for (const float p : routed.probabilities) c.expect(std::isnan(p), "a probability is a number");
    for (const float w : routed.weight) c.expect(std::isnan(w), "a weight is a number");
  }
}

void no_tokens(Checker& c) {
  c.expect(route(c, {0, 8, 2}, {}).choice.empty(), "a choice without a token");
  const auto none = device_array<float>(0);
  const auto position = device_array<int64_t>(0);
  const PermuteShape shape{0, 2, 16};
  permute_forward<float>(c.queue(), shape, none.data(), position.data(), none.data());
  permute_backward<float>(c.queue(), shape, none.data(), position.data(), none.data());
  unpermute_forward<float>(c.queue(), shape, none.data(), position.data(), none.data(),
                           none.data());
  unpermute_backward<float>(c.queue(), shape, none.data(), none.data(), position.data(),
                            none.data(), none.data(), none.data());
  const std::vector<CudaExpertGroup<Bf16>> groups(3);
  expert_gemm_forward<Bf16>(c.queue(), {8, 16}, groups, nullptr, {}, nullptr);
  expert_gemm_backward<Bf16>(c.queue(), {8, 16}, groups, nullptr, nullptr, {}, nullptr);
  const AttentionShape attention{0, 4, 2, 1, 8};
  attention_forward<Bf16>(c.queue(), attention, nullptr, nullptr, nullptr, nullptr, nullptr);
  attention_backward<Bf16>(c.queue(), attention, nullptr, nullptr, nullptr, nullptr, nullptr, {});
  c.expect_done();
}

template <typename T>
DeviceArray<T> write(Checker& c, const std::vector<T>& content) {
  return device_array(c.queue(), content);
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

// Backward as the trainer calls it: the gradients overwrite the rows.
void unpermute_backward_in_place(Checker& c) {
  for (const int64_t width : {5, 264}) {
    const PermuteShape shape{4, 2, width};
    const auto position = write(c, std::vector<int64_t>{3, 0, 7, 1, 2, 6, 4, 5});
    const auto weight = write(c, numbers<float>(8));
    const auto dout = write(c, numbers<float>(4 * width));
    const auto rows = write(c, numbers<Bf16>(8 * width));
    const auto drows = device_array<Bf16>(8 * width);
    const auto dweight = device_array<float>(8);
    unpermute_backward<Bf16>(c.queue(), shape, dout.data(), rows.data(), position.data(),
                             weight.data(), drows.data(), dweight.data());
    const std::vector<float> expected_weight = c.read(dweight);
    unpermute_backward<Bf16>(c.queue(), shape, dout.data(), rows.data(), position.data(),
                             weight.data(), rows.data(), dweight.data());
    c.expect_equal(widened(c.read(rows)), widened(c.read(drows)), "gradients of rows");
    c.expect_equal(c.read(dweight), expected_weight, "gradients of weights");
  }
}

template <typename Real>
void gather_then_scatter_gives_the_same_rows(Checker& c) {
  for (const int64_t width : {1, 7, 40, 2056}) {
    const std::vector<int64_t> order{4, 1, 5, 0, 2, 3};
    const auto index = write(c, order);
    const auto content = numbers<Real>(6 * width);
    const auto from = write(c, content);
    const auto gathered = device_array<Real>(6 * width);
    const auto back = device_array<Real>(6 * width);
    gather_rows<Real>(c.queue(), 6, width, index.data(), from.data(), gathered.data());
    scatter_rows<Real>(c.queue(), 6, width, index.data(), gathered.data(), back.data());
    const std::vector<float> original = widened(content);
    std::vector<float> expected;
    for (const int64_t row : order) {
      expected.insert(expected.end(), original.begin() + row * width,
                      original.begin() + (row + 1) * width);
    }
    c.expect_equal(widened(c.read(gathered)), expected, "gathered rows");
    c.expect_equal(widened(c.read(back)), original, "scattered rows");
  }
}

}  // namespace

std::vector<Check> moe_checks() {
  return {
      {"equal_probabilities_go_to_the_lower_expert", Backend::kCuda,
       equal_probabilities_go_to_the_lower_expert},
      {"the_gate_chooses_as_on_the_cpu", Backend::kCuda, the_gate_chooses_as_on_the_cpu},
      {"one_nan_makes_its_token_choose_the_first_experts", Backend::kCuda,
       one_nan_makes_its_token_choose_the_first_experts},
      {"all_experts_can_be_chosen", Backend::kCuda, all_experts_can_be_chosen},
      {"large_logits_do_not_overflow", Backend::kCuda, large_logits_do_not_overflow},
      {"nan_logits_choose_the_first_experts", Backend::kCuda, nan_logits_choose_the_first_experts},
      {"no_tokens", Backend::kCuda, no_tokens},
      {"unpermute_backward_in_place", Backend::kCuda, unpermute_backward_in_place},
      {"gather_then_scatter_gives_the_same_rows_fp32", Backend::kCuda,
       gather_then_scatter_gives_the_same_rows<float>},
      {"gather_then_scatter_gives_the_same_rows_bf16", Backend::kCuda,
       gather_then_scatter_gives_the_same_rows<Bf16>},
  };
}

}  // namespace ckpt::kernels
