// moetrain: the trainer's program. Its commands are in trainer/cli/.
#include "formats/base/program.h"
#include "trainer/cli/command.h"

int main(int argc, char** argv) {
  return ckpt::base::run_program("moetrain",
                                 [&] { return moetrain::run_command_line(argc, argv); });
}
