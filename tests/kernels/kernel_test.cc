// Every kernel case against a double-precision reference: values, gradients, writes out of bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/blas.h"
#include "tests/kernels/checks.h"
#include "tests/kernels/kernel_case.h"

namespace ckpt::kernels {
namespace {

constexpr uint64_t kSeed = 20240917;
constexpr size_t kGuard = 64;          // floats before and after every output
constexpr float kSentinel = -1234.5f;  // what they hold

// Memory for a result with sentinels around it. What a kernel replaces starts as NaN, so a value
// that was never written, or was read before, shows.
class Guarded {
 public:
  explicit Guarded(size_t count, float content = std::numeric_limits<float>::quiet_NaN())
      : memory_(count + 2 * kGuard, kSentinel) {
    std::fill_n(data(), count, content);
  }
  float* data() { return memory_.data() + kGuard; }
  size_t size() const { return memory_.size() - 2 * kGuard; }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (memory_[i] != kSentinel || memory_[memory_.size() - 1 - i] != kSentinel) return false;
    }
    return true;
  }

 private:
  std::vector<float> memory_;
};

struct Inputs {
  std::vector<std::vector<float>> values;
  Floats pointers() const {
    Floats all;
    for (const auto& input : values) all.push_back(input.data());
    return all;
  }
  Doubles doubles() const {
    Doubles all;
    for (const auto& input : values) all.emplace_back(input.begin(), input.end());
    return all;
  }
};

Inputs random_inputs(const KernelCase& c, std::mt19937_64& random) {
  Inputs inputs;
  for (const size_t count : c.inputs) inputs.values.push_back(random_floats(count, random));
  return inputs;
}

class KernelTest : public testing::TestWithParam<KernelCase> {
 protected:
  KernelTest() : random_(kSeed) {
    use_one_blas_thread();
    RecordProperty("seed", std::to_string(kSeed));
  }

  // What forward adds to or what backward adds to starts as this instead of NaN.
  static constexpr float kBefore = 0.5f;

  std::mt19937_64 random_;
};

TEST_P(KernelTest, ForwardAgreesWithTheReference) {
  const KernelCase& c = GetParam();
  const Inputs inputs = random_inputs(c, random_);
  Guarded output = c.forward_adds ? Guarded(c.outputs, kBefore) : Guarded(c.outputs);
  c.forward(inputs.pointers(), output.data());
  EXPECT_TRUE(output.intact());

  const std::vector<double> expected = c.reference(inputs.doubles());
  ASSERT_EQ(expected.size(), c.outputs);
  std::vector<double> error;
  for (size_t i = 0; i < c.outputs; ++i) {
    const double before = c.forward_adds ? kBefore : 0;
    error.push_back(output.data()[i] - before - expected[i]);
  }
  EXPECT_LE(norm_of(error), c.tolerance * norm_of(expected)) << "seed " << kSeed;
}

TEST_P(KernelTest, ForwardIsBitIdenticalWhenRepeated) {
  const KernelCase& c = GetParam();
  const Inputs inputs = random_inputs(c, random_);
  std::vector<float> first(c.outputs, 0.0f), second(c.outputs, 0.0f);
  c.forward(inputs.pointers(), first.data());
  c.forward(inputs.pointers(), second.data());
  EXPECT_EQ(first, second);
}

TEST_P(KernelTest, BackwardAgreesWithFiniteDifferences) {
  const KernelCase& c = GetParam();
  const Inputs inputs = random_inputs(c, random_);
  const std::vector<float> doutput = random_floats(c.outputs, random_);
  std::vector<Guarded> gradients;
  Gradients pointers;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    gradients.push_back(c.adds[i] ? Guarded(c.inputs[i], kBefore) : Guarded(c.inputs[i]));
  }
  for (Guarded& gradient : gradients) pointers.push_back(gradient.data());
  c.backward(inputs.pointers(), doutput.data(), pointers);

  for (size_t which = 0; which < c.inputs.size(); ++which) {
    SCOPED_TRACE("input " + std::to_string(which));
    EXPECT_TRUE(gradients[which].intact());
    std::vector<double> gradient;
    for (size_t i = 0; i < c.inputs[which]; ++i) {
      gradient.push_back(gradients[which].data()[i] - (c.adds[which] ? kBefore : 0.0f));
    }
    for (int trial = 0; trial < 4; ++trial) {
      const std::vector<float> direction = random_floats(c.inputs[which], random_);
      double along = 0;
      for (size_t i = 0; i < gradient.size(); ++i) along += gradient[i] * direction[i];
      const double expected = derivative(c, inputs.doubles(), which, direction, doutput);
      // The constant is for gradients that vanish: a top-1 weight is always one.
      EXPECT_NEAR(along, expected, c.gradient_tolerance * norm_of(gradient) + 1e-6)
          << "seed " << kSeed << " trial " << trial;
    }
  }
}

std::string case_name(const testing::TestParamInfo<KernelCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Dense, KernelTest, testing::ValuesIn(dense_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Moe, KernelTest, testing::ValuesIn(moe_cases()), case_name);

}  // namespace
}  // namespace ckpt::kernels
