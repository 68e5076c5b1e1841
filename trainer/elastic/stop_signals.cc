#include "trainer/elastic/stop_signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

// Of the process, like the signals themselves; never closed, because a handler may run at any time.
int pipe_ends[2] = {-1, -1};

void note(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!::write(pipe_ends[1], &byte, 1);  // full: enough of them are waiting
  errno = saved;
}

}  // namespace

void hold_stop_signals() {
  if (pipe_ends[0] >= 0) return;
  CKPT_ASSERT_MSG(::pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe2");
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

int stop_signals_fd() { return pipe_ends[0]; }

std::optional<int> take_stop_signal() {
  unsigned char number = 0;
  if (::read(pipe_ends[0], &number, 1) != 1) return std::nullopt;
  return number;
}

}  // namespace moetrain
