// The main function of a program of checks, for machines without a test framework.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/checker.h"

namespace ckpt::kernels {

struct CheckProgram {
  std::string name;  // "gpu_check"
  // Returns the checks to run. `tiny`: sizes that an emulated device can finish.
  std::function<std::vector<Check>(bool tiny)> checks;
};

// Runs the checks on the CPU and on the first GPU, from a fresh seed that it prints. `arguments`:
// command line of the program. Returns its exit code: 0 if no check failed, 1 if a check failed, 2
// for bad usage; kSkippedExitCode, with a message, if no check failed but some need a missing
// device. If a check loses the device, the remaining checks are skipped with a message.
int run_check_program(const CheckProgram& program, const std::vector<std::string>& arguments);

}  // namespace ckpt::kernels
