// The built programs under test, started with arguments in their own folder.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/elastic/process.h"

namespace systemtest {

// A temporary folder, removed at the end. Short, because a socket's path has at most 107 bytes.
class Folder {
 public:
  Folder();
  ~Folder();
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Ended {
  moetrain::ProcessEnd end;
  std::string out;
  std::string err;
  int code() const { return end.signal != 0 ? 128 + end.signal : end.exit_code; }
  nlohmann::json json() const;  // parses `out`; fails the test if it is not JSON
};

// A program of the build, running until wait().
class Program {
 public:
  // `name`: a program of the build, or a path.
  Program(const std::string& name, std::vector<std::string> arguments);
  ~Program();  // kills it
  void signal(int number) { process_->signal(number); }
  pid_t pid() const { return process_->pid(); }
  bool running();
  // Waits, bounded, until `happened` is true; false if this program has ended first. Checks again
  // when a file changes in the folder of a path in the arguments, or when the program prints.
  bool await(const std::function<bool()>& happened);
  // The same, but checks every millisecond: no event announces new children.
  bool await_children(const std::function<bool()>& happened);
  // Waits, bounded, until stderr contains `part`.
  bool await_error_output(const std::string& part);
  std::string error_output() const;  // so far
  // The program's living children: pid and command line of each.
  struct Child {
    pid_t pid = -1;
    std::vector<std::string> arguments;
  };
  std::vector<Child> children() const;
  // Waits for the end; fails the test after a timeout.
  Ended wait();

 private:
  bool await(const std::function<bool()>& happened, std::chrono::milliseconds poll_every);

  Folder folder_;  // holds stdout and stderr
  std::vector<std::filesystem::path> watched_;
  std::optional<moetrain::Process> process_;
  std::optional<moetrain::ProcessEnd> end_;
};

Ended run(const std::string& name, std::vector<std::string> arguments);
// Runs a script in /bin/sh; $B is the folder of the programs.
Ended shell(const std::string& script);

// A ckptd on a data directory, ended by SIGTERM at the end of the scope. Its arenas have 256 MiB
// unless `more` contains --arena.
class Ckptd {
 public:
  explicit Ckptd(const std::string& data_dir, const std::vector<std::string>& more = {});
  ~Ckptd();
  std::string socket() const { return folder_ / "s"; }
  pid_t pid() const { return program_.pid(); }
  bool await_ready() { return program_.await_error_output("ready"); }
  void signal(int number) {
    killed_ = killed_ || number == SIGKILL;
    program_.signal(number);
  }
  Ended ctl(std::vector<std::string> arguments) const;  // ckptctl --json, on this daemon
  // A value of /metrics; needs --http 127.0.0.1:0. Fails the test if the metric is missing.
  double metric(const std::string& name);

 private:
  Folder folder_;
  Program program_;
  bool killed_ = false;
};

std::string read_file(const std::string& path);
std::vector<nlohmann::json> read_lines(const std::string& path);
// Waits, bounded, until a line of the file meets the condition.
bool await_line(const std::string& path, bool (*condition)(const nlohmann::json&));

}  // namespace systemtest
