// Process: a child process of the supervisor, killed when the supervisor dies.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

// How a process ended, in words: "exit 3", "signal 9 (Killed)".
struct ProcessEnd {
  int exit_code = 0;  // if it exited
  int signal = 0;     // if it was killed
  std::string text() const;
};

// Children are in a process group of their own, so that Ctrl-C reaches the supervisor only; when
// the supervisor dies, the kernel sends them `death_signal`.
class Process {
 public:
  struct Options {
    std::vector<std::string> arguments;    // [0] is the program's path
    std::vector<std::string> environment;  // "NAME=value", added to ours
    // Pairs (ours, the child's number of it). Nothing else but 0, 1 and 2 is inherited.
    std::vector<std::pair<int, int>> descriptors;
    int death_signal = 9;              // never ignored by the child
    std::vector<int> ignored_signals;  // by the child, from its start
  };
  static Result<Process> start(const Options& options);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  pid_t pid() const { return pid_; }
  // Readable when the process has ended. -1 (ignored by poll()) if the kernel or a seccomp filter
  // has no pidfd_open(): loops that poll then call reap() periodically.
  int pidfd() const { return pidfd_.get(); }
  // To this process, never to another that got its number: the number is not free before reap().
  void signal(int number) const;
  // Its end, once; nothing while it runs.
  std::optional<ProcessEnd> reap();
  // Waits for its end, at most this long.
  std::optional<ProcessEnd> wait(int timeout_ms);

 private:
  Process(pid_t pid, ckpt::base::UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid_ = -1;
  bool reaped_ = false;
  ckpt::base::UniqueFd pidfd_;
};

// A pipe, both ends closed on exec.
struct Pipe {
  ckpt::base::UniqueFd read;
  ckpt::base::UniqueFd write;
};
Result<Pipe> make_pipe();

// The path of this program, and of another one beside it.
std::string this_program();
std::string sibling_program(const std::string& name);

}  // namespace moetrain
