// The main function of a program of checks, for machines without a test framework.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/checker.h"

namespace ckpt::kernels {

struct CheckProgram {
  std::string name;  // "gpu_check"
  // What it runs; `tiny` in the sizes that an emulated device comes to an end with.
  std::function<std::vector<Check>(bool tiny)> checks;
};

// Runs them on the CPU and on the first GPU, from a fresh seed that it prints. The exit code: 0 if
// nothing is wrong, or if there is no device, and it says so; 1 if something is; 2 for bad usage.
int run_check_program(const CheckProgram& program, int count, char** arguments);

}  // namespace ckpt::kernels
