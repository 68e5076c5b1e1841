// Terminal: a program on a terminal of its own, whose screen a test reads and at which it types.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "formats/base/unique_fd.h"

namespace ckpt::test {

class Terminal {
 public:
  // kStopped: the program stands still at the first thing that it writes, until resume().
  enum class Output { kRuns, kStopped };
  // `environment`: NAME=VALUE, added to this process's.
  Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
           Output output = Output::kRuns);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();  // kills it if it still runs

  // Reads until the text is there or the program has ended. Returns all output so far.
  const std::string& read_until(const std::string& text);
  void type(const std::string& text);
  void resume();
  // Returns the exit code; 128 + n if signal n ended the program.
  int wait();
  pid_t pid() const { return pid_; }
  const std::string& screen() const { return screen_; }

 private:
  bool read_some();

  pid_t pid_ = -1;
  bool ended_ = false;
  base::UniqueFd master_;
  base::UniqueFd slave_;
  std::string screen_;
};

}  // namespace ckpt::test
