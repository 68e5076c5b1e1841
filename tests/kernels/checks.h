// Helpers that the checks of kernels share, whatever the backend.
#pragma once

#include <random>
#include <vector>

#include "tests/kernels/kernel_case.h"

namespace ckpt::kernels {

// Normally distributed values: no zeros.
std::vector<float> random_floats(size_t count, std::mt19937_64& random);
double norm_of(const std::vector<double>& values);
// Small, so that few kinks lie within a step. References in double leave enough digits.
inline constexpr double kDerivativeStep = 1e-5;
// Derivative of <doutput, reference(x)> along `direction` of input `which`: a central difference of
// fourth order.
double derivative(const KernelCase& kernel, const Doubles& x, size_t which,
                  const std::vector<float>& direction, const std::vector<float>& doutput,
                  double step = kDerivativeStep);
// False if the derivative depends on the step. The gate's choice changes where two probabilities
// cross, and no finite difference gives a gradient there.
bool is_smooth(const KernelCase& kernel, const Doubles& x, size_t which,
               const std::vector<float>& direction, const std::vector<float>& doutput);

}  // namespace ckpt::kernels
