#include "bench/daemon_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

extern char** environ;  // NOLINT(readability-identifier-naming): of POSIX

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

Result<std::unique_ptr<DaemonProcess>> DaemonProcess::start(const Options& options) {
  CKPT_ASSIGN(auto scratch, ScratchDirectory::make(options.directory));
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess(std::move(scratch)));
  CKPT_TRY(daemon->spawn(options));
  CKPT_TRY(daemon->wait_ready());
  return daemon;
}

Status DaemonProcess::spawn(const Options& options) {
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::string program = (self.parent_path() / "ckptd").string();
  std::filesystem::create_directory(data(), failed);
  std::vector<std::string> arguments = {program,
                                        "--data",
                                        data(),
                                        "--listen",
                                        "unix:" + socket(),
                                        "--arena",
                                        std::to_string(options.arena_bytes),
                                        "--io",
                                        options.engine};
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log().c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  const int error =
      ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    return make_error(ErrorCode::kUnavailable, "{}: {}", program, std::strerror(error));
  }
  return {};
}

Status DaemonProcess::wait_ready() {
  for (int i = 0; i < 3000; ++i) {
    std::ifstream file(log());
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find("ready") != std::string::npos) return {};
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return make_error(ErrorCode::kUnavailable, "ckptd stopped: {}", text.str());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return make_error(ErrorCode::kDeadlineExceeded, "ckptd was not ready within 30 s");
}

DaemonProcess::~DaemonProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  for (int i = 0; i < 1500; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace bench
