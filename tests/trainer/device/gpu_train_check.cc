// gpu_train_check: checks training on a GPU. Results match the host, repeat bit for bit, also after
// a resume from a snapshot, and bf16 stays close to fp32.
#include "formats/base/program.h"
#include "tests/kernels/check_program.h"
#include "tests/trainer/device/train_checks.h"

int main(int count, char** arguments) {
  return ckpt::base::run_program("gpu_train_check", [&] {
    return ckpt::kernels::run_check_program({"gpu_train_check", moetrain::train_checks},
                                            {arguments + 1, arguments + count});
  });
}
