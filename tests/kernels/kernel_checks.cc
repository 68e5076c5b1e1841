// Every kernel case on the CPU and on a GPU: values match the double-precision reference, gradients
// match its finite differences, a repeated call gives the same bits, and nothing is written out of
// bounds.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/checker.h"
#include "tests/kernels/checks.h"
#include "tests/kernels/kernel_case.h"

namespace ckpt::kernels {
namespace {

constexpr size_t kGuard = 64;          // elements before and after every array
constexpr float kSentinel = -1232.0f;  // value of the guard elements; exact in bf16
constexpr float kBefore = 0.5f;        // initial value of results that a kernel adds to
// Initial value of results that a kernel replaces: NaN reveals a missing write or an early read.
constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

float rounded(float value, Type type) {
  return type == Type::kBf16 ? to_float(to_bf16(value)) : value;
}

// An array of the backend with sentinels around it.
class Guarded {
 public:
  // `offset`: additional sentinels in front.
  Guarded(Checker& checker, Type type, const std::vector<float>& content, size_t offset)
      : checker_(&checker), type_(type), size_(content.size()), front_(kGuard + offset) {
    std::vector<float> all(front_ + size_ + kGuard, kSentinel);
    std::copy(content.begin(), content.end(), all.begin() + static_cast<ptrdiff_t>(front_));
    std::vector<std::byte> bytes(all.size() * size_of(type));
    for (size_t i = 0; i < all.size(); ++i) {
      const Bf16 narrow = to_bf16(all[i]);
      const void* from = type == Type::kBf16 ? static_cast<const void*>(&narrow) : &all[i];
      std::memcpy(bytes.data() + i * size_of(type), from, size_of(type));
    }
    if (checker.on_gpu()) {
      on_device_ = device_array(checker.queue(), bytes);
    } else {
      on_host_ = std::move(bytes);
    }
  }
  Untyped data() {
    std::byte* const all = checker_->on_gpu() ? on_device_.data() : on_host_.data();
    return {all + front_ * size_of(type_), type_};
  }
  // Current content. Adds a finding if a sentinel has changed.
  std::vector<float> read() const {
    const std::vector<std::byte> bytes = checker_->on_gpu() ? checker_->read(on_device_) : on_host_;
    std::vector<float> all(front_ + size_ + kGuard);
    for (size_t i = 0; i < all.size(); ++i) {
      Bf16 narrow{};
      void* to = type_ == Type::kBf16 ? static_cast<void*>(&narrow) : &all[i];
      std::memcpy(to, bytes.data() + i * size_of(type_), size_of(type_));
      if (type_ == Type::kBf16) all[i] = to_float(narrow);
    }
    const auto untouched = [](float value) { return value == kSentinel; };
    const auto first = all.begin() + static_cast<ptrdiff_t>(front_);
    checker_->expect(std::all_of(all.begin(), first, untouched), "elements in front were written");
    checker_->expect(std::all_of(all.end() - kGuard, all.end(), untouched),
                     "elements behind were written");
    return {first, all.end() - kGuard};
  }

 private:
  Checker* checker_;
  Type type_;
  size_t size_;
  size_t front_;  // sentinels in front of the first element
  DeviceArray<std::byte> on_device_;
  std::vector<std::byte> on_host_;
};

// A case on one backend: on the CPU everything is fp32.
struct Subject {
  const KernelCase& kernel;
  const CudaVariant* variant;  // null: the CPU

  Type input(size_t which) const {
    return variant != nullptr ? variant->inputs[which] : Type::kFloat;
  }
  Type output() const { return variant != nullptr ? variant->output : Type::kFloat; }
  Type gradient(size_t which) const {
    return variant != nullptr ? variant->gradients[which] : Type::kFloat;
  }
  size_t offset() const { return variant != nullptr ? variant->offset : 0; }
  double tolerance() const { return variant != nullptr ? variant->tolerance : kernel.tolerance; }
  double gradient_tolerance() const {
    return variant != nullptr ? variant->gradient_tolerance : kernel.gradient_tolerance;
  }
};

// One run of a subject, with its own inputs.
class Trial {
 public:
  Trial(Checker& checker, const Subject& subject) : checker_(checker), subject_(subject) {
    for (size_t i = 0; i < subject.kernel.inputs.size(); ++i) {
      inputs_.push_back(values(subject.kernel.inputs[i], subject.input(i)));
      arrays_.emplace_back(checker, subject.input(i), inputs_.back(), subject.offset());
    }
  }

  // New random numbers, rounded to the type.
  std::vector<float> values(size_t count, Type type) {
    std::vector<float> some = random_floats(count, checker_.random);
    for (float& value : some) value = rounded(value, type);
    return some;
  }
  const std::vector<std::vector<float>>& inputs() const { return inputs_; }
  Doubles doubles() const {
    Doubles all;
    for (const auto& input : inputs_) all.emplace_back(input.begin(), input.end());
    return all;
  }
  std::vector<float> forward() {
    const float start = subject_.kernel.forward_adds ? kBefore : kUnwritten;
    Guarded output(checker_, subject_.output(), std::vector<float>(subject_.kernel.outputs, start),
                   subject_.offset());
    if (subject_.variant == nullptr) {
      subject_.kernel.forward(floats(pointers(arrays_)), output.data());
    } else {
      Workspace work;
      run(subject_.variant->forward(checker_.queue(), work, pointers(arrays_), output.data()));
    }
    return output.read();
  }
  // Gradients of all inputs for this gradient of the output.
  std::vector<std::vector<float>> backward(const std::vector<float>& doutput) {
    Guarded given(checker_, subject_.output(), doutput, subject_.offset());
    std::vector<Guarded> gradients;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const float start = subject_.kernel.adds[i] ? kBefore : kUnwritten;
      gradients.emplace_back(checker_, subject_.gradient(i),
                             std::vector<float>(inputs_[i].size(), start), subject_.offset());
    }
    if (subject_.variant == nullptr) {
      Gradients to;
      for (Guarded& gradient : gradients) to.push_back(gradient.data());
      subject_.kernel.backward(floats(pointers(arrays_)), given.data().as<float>(), to);
    } else {
      Workspace work;
      run(subject_.variant->backward(checker_.queue(), work, pointers(arrays_), given.data(),
                                     pointers(gradients)));
    }
    std::vector<std::vector<float>> read;
    for (const Guarded& gradient : gradients) read.push_back(gradient.read());
    return read;
  }

 private:
  static void run(const Prepared& prepared) {
    prepared.launch();
    if (prepared.finish) prepared.finish();
  }
  static Arrays pointers(std::vector<Guarded>& arrays) {
    Arrays all;
    for (Guarded& array : arrays) all.push_back(array.data());
    return all;
  }
  static Floats floats(const Arrays& arrays) {
    Floats all;
    for (const Untyped& array : arrays) all.push_back(array.as<float>());
    return all;
  }

  Checker& checker_;
  const Subject& subject_;
  std::vector<std::vector<float>> inputs_;
  std::vector<Guarded> arrays_;
};

void check_forward(Checker& c, const Subject& subject) {
  Trial trial(c, subject);
  const std::vector<float> output = trial.forward();
  const std::vector<double> expected = subject.kernel.reference(trial.doubles());
  std::vector<double> error;
  for (size_t i = 0; i < output.size(); ++i) {
    error.push_back(output[i] - (subject.kernel.forward_adds ? kBefore : 0.0f) - expected[i]);
  }
  c.expect(expected.size() == output.size(), "the reference has another size");
  const double off = norm_of(error);
  c.expect(off <= subject.tolerance() * norm_of(expected),
           "off by " + std::to_string(off) + " of " + std::to_string(norm_of(expected)));
  c.expect_equal(trial.forward(), output, "forward, repeated");
}

// Compares with finite differences along a few random directions.
void check_gradient(Checker& c, const Subject& subject, const Trial& trial, size_t which,
                    const std::vector<double>& gradient, const std::vector<float>& doutput) {
  constexpr int kDirections = 4;
  constexpr double kSigmas = 5;  // the sum of errors along a direction is normal, too
  const Doubles inputs = trial.doubles();
  int kinks = 0;
  for (int i = 0; i < kDirections; ++i) {
    const std::vector<float> direction = random_floats(gradient.size(), c.random);
    double along = 0;
    for (size_t at = 0; at < gradient.size(); ++at) along += gradient[at] * direction[at];
    const double expected = derivative(subject.kernel, inputs, which, direction, doutput);
    const double allowed =
        kSigmas * subject.gradient_tolerance() * norm_of(gradient) + subject.kernel.gradient_floor;
    if (std::abs(along - expected) <= allowed) continue;
    if (is_smooth(subject.kernel, inputs, which, direction, doutput)) {
      c.expect_near(along, expected, allowed,
                    "the gradient of input " + std::to_string(which) + " along a direction");
    } else {
      ++kinks;
    }
  }
  c.expect(kinks < kDirections, "every direction crosses a kink: nothing was compared");
}

void check_backward(Checker& c, const Subject& subject) {
  Trial trial(c, subject);
  const std::vector<float> doutput = trial.values(subject.kernel.outputs, subject.output());
  const auto gradients = trial.backward(doutput);
  for (size_t which = 0; which < gradients.size(); ++which) {
    std::vector<double> gradient;
    for (const float value : gradients[which]) {
      gradient.push_back(value - (subject.kernel.adds[which] ? kBefore : 0.0f));
    }
    check_gradient(c, subject, trial, which, gradient, doutput);
  }
  const auto again = trial.backward(doutput);
  for (size_t i = 0; i < again.size(); ++i) {
    c.expect_equal(again[i], gradients[i], "gradient " + std::to_string(i) + ", repeated");
  }
}

// Compares what was added to `values` and `expected`, which both started as `before`.
void expect_like(Checker& c, const std::vector<float>& values, const std::vector<float>& expected,
                 float before, double tolerance, double floor, const std::string& what) {
  std::vector<double> error;
  std::vector<double> wanted;
  error.reserve(values.size());
  wanted.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    error.push_back(static_cast<double>(values[i]) - static_cast<double>(expected[i]));
    wanted.push_back(static_cast<double>(expected[i]) - static_cast<double>(before));
  }
  const double off = norm_of(error);
  c.expect(off <= tolerance * norm_of(wanted) + floor,
           what + ": off by " + std::to_string(off) + " of " + std::to_string(norm_of(wanted)));
}

// For shapes too large for references in double: compares the GPU's version with the CPU's, which
// smaller shapes compare with the references. The tolerances of both versions add up: each may
// deviate from the reference.
void check_like_cpu(Checker& c, const Subject& subject) {
  const KernelCase& kernel = subject.kernel;
  Trial trial(c, subject);
  Floats inputs;
  for (const auto& input : trial.inputs()) inputs.push_back(input.data());
  const float start = kernel.forward_adds ? kBefore : kUnwritten;
  std::vector<float> expected(kernel.outputs, start);
  kernel.forward(inputs, expected.data());
  const std::vector<float> output = trial.forward();
  expect_like(c, output, expected, kernel.forward_adds ? kBefore : 0,
              subject.tolerance() + kernel.tolerance, 0, "output");
  c.expect_equal(trial.forward(), output, "forward, repeated");

  const std::vector<float> doutput = trial.values(kernel.outputs, subject.output());
  std::vector<std::vector<float>> wanted;
  Gradients to;
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    wanted.emplace_back(kernel.inputs[i], kernel.adds[i] ? kBefore : kUnwritten);
    to.push_back(wanted.back().data());  // stays valid when the outer vector grows
  }
  kernel.backward(inputs, doutput.data(), to);
  const auto gradients = trial.backward(doutput);
  for (size_t i = 0; i < gradients.size(); ++i) {
    expect_like(c, gradients[i], wanted[i], kernel.adds[i] ? kBefore : 0,
                subject.gradient_tolerance() + kernel.gradient_tolerance, kernel.gradient_floor,
                "gradient " + std::to_string(i));
  }
  c.expect(trial.backward(doutput) == gradients, "gradients, repeated: other bits");
}

// "cross_entropy_7x19" -> "cross_entropy".
std::string family(const KernelCase& kernel) {
  return kernel.name.substr(0, kernel.name.find_first_of("0123456789") - 1);
}

}  // namespace

std::vector<Check> kernel_checks(bool tiny) {
  std::vector<Check> all;
  const auto add = [&](const KernelCase& kernel, const CudaVariant* variant) {
    const Backend backend = variant == nullptr ? Backend::kCpu : Backend::kCuda;
    const std::string name =
        kernel.name + "_" + (variant == nullptr ? "cpu" : "cuda_" + variant->name);
    const auto with_subject = [&](void (*check)(Checker&, const Subject&)) {
      const CudaVariant copy = variant == nullptr ? CudaVariant{} : *variant;
      return [check, kernel, copy, backend](Checker& c) {
        check(c, {kernel, backend == Backend::kCpu ? nullptr : &copy});
      };
    };
    all.push_back({name + "_forward", backend, with_subject(check_forward), family(kernel)});
    all.push_back({name + "_backward", backend, with_subject(check_backward), family(kernel)});
  };
  for (const auto& cases : {dense_cases(), moe_cases()}) {
    for (const KernelCase& kernel : cases) {
      add(kernel, nullptr);
      for (const CudaVariant& variant : kernel.cuda) add(kernel, &variant);
    }
  }
  for (const auto& cases : {dense_wide_cases(tiny), moe_wide_cases(tiny)}) {
    for (const KernelCase& kernel : cases) {
      for (const CudaVariant& variant : kernel.cuda) {
        all.push_back({"wide_" + kernel.name + "_cuda_" + variant.name, Backend::kCuda,
                       [=](Checker& c) {
                         check_like_cpu(c, {kernel, &variant});
                       },
                       "wide_" + family(kernel)});
      }
    }
  }
  return all;
}

}  // namespace ckpt::kernels
