// gpu_train_check: what a GPU must keep of the training: the host's numbers, the same bits again,
// the same bits from a snapshot on, and bf16 close to fp32.
#include "formats/base/program.h"
#include "tests/kernels/check_program.h"
#include "tests/trainer/device/train_checks.h"

int main(int count, char** arguments) {
  return ckpt::base::run_program("gpu_train_check", [&] {
    return ckpt::kernels::run_check_program({"gpu_train_check", moetrain::train_checks},
                                            {arguments + 1, arguments + count});
  });
}
