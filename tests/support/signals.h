// Signals to processes of a test.
#pragma once

#include <signal.h>
#include <sys/types.h>

namespace ckpt::test {

// Sends the signal to one process. False if it has ended, or if `pid` names no single process: the
// kernel would send to a whole process group for 0, and to every process of the user for -1, the
// value of a program that did not start.
[[nodiscard]] inline bool send_signal(pid_t pid, int number) {
  return pid > 0 && ::kill(pid, number) == 0;
}

}  // namespace ckpt::test
