#include "tests/kernels/checks.h"

#include <cmath>

namespace ckpt::kernels {

std::vector<float> random_floats(size_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

double derivative(const KernelCase& kernel, const Doubles& x, size_t which,
                  const std::vector<float>& direction, const std::vector<float>& doutput,
                  double step) {
  const auto value_at = [&](double distance) {
    Doubles moved = x;
    for (size_t i = 0; i < direction.size(); ++i) {
      moved[which][i] += distance * static_cast<double>(direction[i]);
    }
    const std::vector<double> y = kernel.reference(moved);
    double total = 0;
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * static_cast<double>(doutput[i]);
    return total;
  };
  return (8 * (value_at(step) - value_at(-step)) - (value_at(2 * step) - value_at(-2 * step))) /
         (12 * step);
}

bool is_smooth(const KernelCase& kernel, const Doubles& x, size_t which,
               const std::vector<float>& direction, const std::vector<float>& doutput) {
  const double wide = derivative(kernel, x, which, direction, doutput);
  const double near = derivative(kernel, x, which, direction, doutput, kDerivativeStep / 8);
  return std::abs(wide - near) <= 1e-6 * (std::abs(wide) + std::abs(near)) + 1e-6;
}

namespace {

double touched_elements(const KernelCase& kernel, size_t which) {
  return static_cast<double>(kernel.touched.empty() ? kernel.inputs[which] : kernel.touched[which]);
}

double output_bytes(const KernelCase& kernel, const CudaVariant& variant) {
  return static_cast<double>(kernel.outputs * size_of(variant.output));
}

}  // namespace

Work forward_work(const KernelCase& kernel, const CudaVariant& variant) {
  Work work{.bytes = static_cast<double>(kernel.kept_bytes), .flops = kernel.forward_flops};
  work.bytes += (kernel.forward_adds ? 2 : 1) * output_bytes(kernel, variant);
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    work.bytes += touched_elements(kernel, i) * static_cast<double>(size_of(variant.inputs[i]));
  }
  return work;
}

Work backward_work(const KernelCase& kernel, const CudaVariant& variant) {
  Work work{.bytes = static_cast<double>(kernel.kept_bytes), .flops = 2 * kernel.forward_flops};
  work.bytes += output_bytes(kernel, variant);
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const size_t passes = kernel.adds[i] ? 2 : 1;
    size_t element = passes * size_of(variant.gradients[i]);
    if (kernel.backward_reads_inputs) element += size_of(variant.inputs[i]);
    work.bytes += touched_elements(kernel, i) * static_cast<double>(element);
  }
  return work;
}

}  // namespace ckpt::kernels
