#include "trainer/elastic/stop_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "formats/base/console.h"

namespace moetrain {

namespace {

constexpr int kStopPollMs = 50;

// One pipe for the process, like the signals; never closed, because a handler may run at any time.
int pipe_ends[2] = {-1, -1};

void note(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!::write(pipe_ends[1], &byte, 1);  // full: enough signals are waiting
  errno = saved;
}

}  // namespace

void handle_unless_ignored(int number, void (*handler)(int)) {
  struct sigaction action {};
  if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

void hold_stop_signals() {
  if (pipe_ends[0] >= 0) return;
  if (::pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe for stop signals");
  }
  for (const int number : kStopSignals) handle_unless_ignored(number, note);
}

int stop_signals_fd() { return pipe_ends[0]; }

std::optional<int> take_stop_signal() {
  unsigned char number = 0;
  if (::read(pipe_ends[0], &number, 1) != 1) return std::nullopt;
  return number;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? std::to_string(number) : std::string("SIG") + name;
}

ExitOnStopSignal::ExitOnStopSignal(std::function<void()> clean_up)
    : thread_([clean_up = std::move(clean_up)](const std::stop_token& over) {
        while (!over.stop_requested()) {
          pollfd stop{stop_signals_fd(), POLLIN, 0};
          if (::poll(&stop, 1, kStopPollMs) != 1) continue;
          const std::optional<int> number = take_stop_signal();
          if (!number) continue;
          clean_up();
          ckpt::base::print_stderr("moetrain: {}\n", stopped_early(*number));
          ::_exit(128 + *number);
        }
      }) {}

std::string stopped_early(int number) {
  return "stopped by " + signal_name(number) + " before the first step: nothing was trained";
}

int stop_rank_signal() { return SIGRTMIN; }
int leave_rank_signal() { return SIGRTMIN + 1; }

}  // namespace moetrain
