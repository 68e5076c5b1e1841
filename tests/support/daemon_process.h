// A real ckptd for whole-system tests: the program next to the tests, in a directory of its own.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ckpt::testing {

// A directory under the test's temporary directory, removed with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Exit {
  int code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out;  // stdout
  std::string err;  // stderr
};
// Runs a program to its end. Fails the test and kills the program if that takes over a minute.
Exit run_program(const std::vector<std::string>& arguments);

// The path of a program of this build, e.g. "ckptd".
std::string program(const std::string& name);

class DaemonProcess {
 public:
  // Does not start it. `flags` are added to --data and --listen.
  explicit DaemonProcess(std::string data, std::vector<std::string> flags = {});
  ~DaemonProcess();  // kills it if it runs
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  // Returns when it prints `ready`; fails the test if it ends before, with what it said.
  void start();
  void kill();  // SIGKILL, and waits for its end
  int stop();   // SIGTERM; its exit code
  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  const std::string& socket() const { return socket_; }
  const std::string& data() const { return data_; }
  std::string log() const;  // what it has said since the last start

 private:
  int wait_for_end();
  std::string data_;
  std::string socket_;
  std::vector<std::string> flags_;
  pid_t pid_ = 0;

  // Its log is read as it comes, so that it never blocks on a full pipe.
  std::thread reader_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string log_;
  bool log_ended_ = false;
};

}  // namespace ckpt::testing
