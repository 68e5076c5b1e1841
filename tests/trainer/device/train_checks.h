// Checks of training on a GPU: the whole step, not its kernels. GoogleTest (cuda_model_test.cc)
// runs them on the emulated device, gpu_train_check on machines without GoogleTest.
#pragma once

#include <vector>

#include "tests/kernels/checker.h"

namespace moetrain {

// `tiny`: models and numbers of steps that an emulated device can finish. Otherwise small real
// models, which take a minute on a GPU with its CPU.
std::vector<ckpt::kernels::Check> train_checks(bool tiny);

}  // namespace moetrain
