// gpu_check: every check of kernels on the CPU and on the GPU, without a test framework, on fresh
// random numbers.
#include "formats/base/program.h"
#include "tests/kernels/check_program.h"

int main(int count, char** arguments) {
  using ckpt::kernels::all_checks;
  return ckpt::base::run_program("gpu_check", [&] {
    return ckpt::kernels::run_check_program({"gpu_check", all_checks},
                                            {arguments + 1, arguments + count});
  });
}
