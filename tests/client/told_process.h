// A told_trainer as a process of its own.
#pragma once

#include <string>

#include "formats/base/unique_fd.h"
#include "trainer/elastic/process.h"

namespace ckpt::test {

class ToldProcess {
 public:
  explicit ToldProcess(const std::string& socket);
  ToldProcess(const ToldProcess&) = delete;
  ToldProcess& operator=(const ToldProcess&) = delete;
  ~ToldProcess();  // kills it if it still runs

  // A command, and its answer: waited for at most a minute, empty and a failure of the test if
  // there is none. Two trainers that wait for each other are told first and asked then.
  void say(const std::string& command);
  std::string answer();
  std::string tell(const std::string& command) {
    say(command);
    return answer();
  }
  void kill();  // SIGKILL, and waits for the end

 private:
  base::UniqueFd line_;  // a socket: a trainer that is gone is an error, not a SIGPIPE
  moetrain::Process process_;
  std::string last_command_;
  std::string received_;
};

}  // namespace ckpt::test
