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

// Runs them on the CPU and on the first GPU, from a fresh seed that it prints. `arguments`: those
// of the program. The exit code: 0 if nothing is wrong; 1 if something is; kSkippedExitCode if
// nothing is, but some checks need a device and there is none, and it says so; 2 for bad usage. A
// device that a check has lost ends the others with a sentence.
int run_check_program(const CheckProgram& program, const std::vector<std::string>& arguments);

}  // namespace ckpt::kernels
