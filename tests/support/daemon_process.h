// Real programs in tests: ckptd in a folder of its own, killed by its pid, and any other, run to
// its end.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace ckpt::test {

class DaemonProcess {
 public:
  // Waits until the daemon is ready. Fails the test, with the daemon's output, if it does not get
  // ready. `data`: the data directory; by default it is in a folder of this object, and so is the
  // socket without --listen.
  explicit DaemonProcess(std::vector<std::string> more_arguments = {}, std::string data = {});
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;
  ~DaemonProcess();  // kills it if it still runs, removes the folder

  void start();
  void kill();                     // SIGKILL
  int stop(int signal = SIGTERM);  // its exit status
  // Kills it and starts it again on the same folder.
  void crash_and_restart() {
    kill();
    start();
  }

  const std::string& socket() const { return socket_; }
  const std::string& data() const { return data_; }
  std::string log() const;  // what all of its lives said on stderr
  pid_t pid() const { return pid_; }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
  std::vector<std::string> arguments_;
  std::string data_;
  std::string socket_;
  pid_t pid_ = -1;
};

// Runs a program to its end; stdout and stderr are kept apart.
struct Finished {
  int exit_code = -1;  // 128 + n if signal n ended it
  std::string out;
  std::string err;
};
Finished run_program(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment = {});

// The path of a program of this build: "ckptd".
std::string program(const std::string& name);

}  // namespace ckpt::test
