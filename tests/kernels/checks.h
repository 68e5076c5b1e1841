// What checks of kernels have in common, whatever the backend.
#pragma once

#include <random>
#include <vector>

#include "tests/kernels/kernel_case.h"

namespace ckpt::kernels {

// Normally distributed: no zeros.
std::vector<float> random_floats(size_t count, std::mt19937_64& random);
double norm_of(const std::vector<double>& values);
// Small, for the sake of kinks; the references are in double, so enough digits are left.
inline constexpr double kDerivativeStep = 1e-5;
// Of <doutput, reference(x)> along `direction` of input `which`: a central difference of fourth
// order.
double derivative(const KernelCase& kernel, const Doubles& x, size_t which,
                  const std::vector<float>& direction, const std::vector<float>& doutput,
                  double step = kDerivativeStep);
// False where the derivative depends on the step: the gate's choices change where two probabilities
// cross, and there no difference says what the gradient is.
bool is_smooth(const KernelCase& kernel, const Doubles& x, size_t which,
               const std::vector<float>& direction, const std::vector<float>& doutput);

}  // namespace ckpt::kernels
