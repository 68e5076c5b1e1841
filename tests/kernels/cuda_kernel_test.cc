// Every kernel case on a GPU, or on the emulated one: values and gradients against the reference,
// the same bits when repeated, nothing written out of bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/kernels/checks.h"
#include "tests/kernels/cuda_fixture.h"
#include "tests/kernels/cuda_variant.h"
#include "tests/kernels/kernel_case.h"

namespace ckpt::kernels {
namespace {

constexpr uint64_t kSeed = 20241121;
constexpr size_t kGuard = 64;          // elements before and after every array
constexpr float kSentinel = -1232.0f;  // what they hold; exact in bf16
constexpr float kBefore = 0.5f;        // what results that are added to start as
constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

size_t size_of(Type type) { return type == Type::kBf16 ? sizeof(Bf16) : sizeof(float); }

float rounded(float value, Type type) {
  return type == Type::kBf16 ? to_float(to_bf16(value)) : value;
}

// An array on the device with sentinels around it.
class Guarded {
 public:
  Guarded(CudaQueue& queue, Type type, const std::vector<float>& content)
      : queue_(queue),
        type_(type),
        size_(content.size()),
        memory_(device_array<std::byte>(
            static_cast<int64_t>((content.size() + 2 * kGuard) * size_of(type)))) {
    std::vector<float> all(size_ + 2 * kGuard, kSentinel);
    std::copy(content.begin(), content.end(), all.begin() + kGuard);
    std::vector<std::byte> bytes(memory_.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const Bf16 narrow = to_bf16(all[i]);
      const void* from = type == Type::kBf16 ? static_cast<const void*>(&narrow) : &all[i];
      std::memcpy(bytes.data() + i * size_of(type), from, size_of(type));
    }
    queue.upload(memory_.data(), bytes.data(), bytes.size());
  }
  Untyped data() const { return {memory_.data() + kGuard * size_of(type_), type_}; }
  // What it holds. Fails the test if a sentinel has changed.
  std::vector<float> read() const {
    std::vector<std::byte> bytes(memory_.size());
    const Status got = download(queue_, bytes.data(), memory_.data(), bytes.size());
    EXPECT_TRUE(got.ok()) << got.error().message;
    std::vector<float> all(size_ + 2 * kGuard);
    for (size_t i = 0; i < all.size(); ++i) {
      Bf16 narrow{};
      void* to = type_ == Type::kBf16 ? static_cast<void*>(&narrow) : &all[i];
      std::memcpy(to, bytes.data() + i * size_of(type_), size_of(type_));
      if (type_ == Type::kBf16) all[i] = to_float(narrow);
    }
    const auto untouched = [](float value) { return value == kSentinel; };
    EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kGuard, untouched));
    EXPECT_TRUE(std::all_of(all.end() - kGuard, all.end(), untouched));
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  CudaQueue& queue_;
  Type type_;
  size_t size_;
  DeviceArray<std::byte> memory_;
};

struct CudaCase {
  KernelCase kernel;
  CudaVariant variant;
};
void PrintTo(const CudaCase& cuda_case, std::ostream* out) {
  *out << cuda_case.kernel.name << " " << cuda_case.variant.name;
}

class CudaKernelTest : public CudaTest, public testing::WithParamInterface<CudaCase> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (queue_ == nullptr) return;
    const CudaCase& c = GetParam();
    for (size_t i = 0; i < c.kernel.inputs.size(); ++i) {
      inputs_.push_back(values(c.kernel.inputs[i], c.variant.inputs[i]));
      on_device_.emplace_back(*queue_, c.variant.inputs[i], inputs_.back());
    }
  }

  // Fresh random numbers that the type can hold.
  std::vector<float> values(size_t count, Type type) {
    std::vector<float> some = random_floats(count, random_);
    for (float& value : some) value = rounded(value, type);
    return some;
  }
  std::vector<Untyped> inputs() const {
    std::vector<Untyped> all;
    for (const Guarded& input : on_device_) all.push_back(input.data());
    return all;
  }
  Doubles doubles() const {
    Doubles all;
    for (const auto& input : inputs_) all.emplace_back(input.begin(), input.end());
    return all;
  }
  std::vector<float> forward() {
    const CudaCase& c = GetParam();
    const float start = c.kernel.forward_adds ? kBefore : kUnwritten;
    const Guarded output(*queue_, c.variant.output, std::vector<float>(c.kernel.outputs, start));
    c.variant.forward(*queue_, inputs(), output.data());
    return output.read();
  }
  // Of every input, for this gradient of the output.
  std::vector<std::vector<float>> backward(const std::vector<float>& doutput) {
    const CudaCase& c = GetParam();
    const Guarded given(*queue_, c.variant.output, doutput);
    std::vector<Guarded> gradients;
    std::vector<Untyped> pointers;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const float start = c.kernel.adds[i] ? kBefore : kUnwritten;
      gradients.emplace_back(*queue_, c.variant.gradients[i],
                             std::vector<float>(inputs_[i].size(), start));
      pointers.push_back(gradients.back().data());
    }
    c.variant.backward(*queue_, inputs(), given.data(), pointers);
    std::vector<std::vector<float>> read;
    for (const Guarded& gradient : gradients) read.push_back(gradient.read());
    return read;
  }

  std::mt19937_64 random_{kSeed};
  std::vector<std::vector<float>> inputs_;
  std::vector<Guarded> on_device_;
};

TEST_P(CudaKernelTest, ForwardAgreesWithTheReference) {
  const CudaCase& c = GetParam();
  const std::vector<float> output = forward();
  const std::vector<double> expected = c.kernel.reference(doubles());
  std::vector<double> error;
  for (size_t i = 0; i < output.size(); ++i) {
    error.push_back(output[i] - (c.kernel.forward_adds ? kBefore : 0.0f) - expected[i]);
  }
  EXPECT_LE(norm_of(error), c.variant.tolerance * norm_of(expected)) << "seed " << kSeed;
  EXPECT_EQ(forward(), output) << "the same bits when repeated";
}

TEST_P(CudaKernelTest, BackwardAgreesWithFiniteDifferences) {
  const CudaCase& c = GetParam();
  const std::vector<float> doutput = values(c.kernel.outputs, c.variant.output);
  const auto gradients = backward(doutput);
  for (size_t which = 0; which < inputs_.size(); ++which) {
    SCOPED_TRACE("input " + std::to_string(which));
    std::vector<double> gradient;
    for (const float value : gradients[which]) {
      gradient.push_back(value - (c.kernel.adds[which] ? kBefore : 0.0f));
    }
    for (int trial = 0; trial < 4; ++trial) {
      const std::vector<float> direction = random_floats(gradient.size(), random_);
      double along = 0;
      for (size_t i = 0; i < gradient.size(); ++i) along += gradient[i] * direction[i];
      const double expected = derivative(c.kernel, doubles(), which, direction, doutput);
      EXPECT_NEAR(along, expected, c.variant.gradient_tolerance * norm_of(gradient) * 3 + 1e-6)
          << "seed " << kSeed << " trial " << trial;
    }
  }
  EXPECT_EQ(backward(doutput), gradients) << "the same bits when repeated";
}

std::vector<CudaCase> cuda_cases() {
  std::vector<CudaCase> cases;
  for (const auto& all : {dense_cases(), moe_cases()}) {
    for (const KernelCase& kernel : all) {
      for (const CudaVariant& variant : kernel.cuda) cases.push_back({kernel, variant});
    }
  }
  return cases;
}

std::string case_name(const testing::TestParamInfo<CudaCase>& info) {
  return info.param.kernel.name + "_" + info.param.variant.name;
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernelTest, testing::ValuesIn(cuda_cases()), case_name);

}  // namespace
}  // namespace ckpt::kernels
