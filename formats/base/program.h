// run_program: the frame that every main() of this project runs in.
//
// It keeps a program from ending in a way that no user can act on:
// - Descriptors 0 to 2 that are closed (cron, service managers, `>&-`) are opened first. Otherwise
//   the next file that is opened becomes stderr, and log lines are written into it.
// - SIGPIPE and SIGXFSZ are ignored: write() fails with EPIPE or EFBIG instead of killing us.
// - An exception that nothing caught, on any thread, becomes one sentence and exit code 1.
// - Output that stdout did not take becomes one sentence and exit code 1. A reader that closed the
//   pipe gets no message: only exit code 1.
#pragma once

#include <functional>

namespace ckpt::base {

// Exit code of the program `name` whose work is `body`. Call it first in main().
int run_program(const char* name, const std::function<int()>& body);

}  // namespace ckpt::base
