// Whole programs under test: the built ones, started with arguments, in a folder of their own.
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

// A folder that goes away with the test. Short, because a socket's path has at most 107 bytes.
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
  nlohmann::json json() const;  // of `out`; fails the test if it is none
};

// A program of the build that runs until wait().
class Program {
 public:
  // `name`: of the build, or a path.
  Program(const std::string& name, std::vector<std::string> arguments);
  ~Program();  // kills it
  void signal(int number) { process_->signal(number); }
  pid_t pid() const { return process_->pid(); }
  bool running();
  // Waits, bounded, until that is so; false if this program has ended first. It is looked at
  // whenever a file changes beside one that an argument names, or what the program prints does.
  bool await(const std::function<bool()>& happened);
  // The same of its children, whose coming no event announces: looked at all the time.
  bool await_children(const std::function<bool()>& happened);
  // What it has printed on stderr so far contains this: waits for it, bounded.
  bool await_error_output(const std::string& part);
  std::string error_output() const;  // so far
  // Its children that live now, a pid and the command line of each.
  struct Child {
    pid_t pid = -1;
    std::vector<std::string> arguments;
  };
  std::vector<Child> children() const;
  // Bounded: fails the test if it does not end.
  Ended wait();

 private:
  bool await(const std::function<bool()>& happened, std::chrono::milliseconds look_every);

  Folder folder_;  // holds what it printed
  std::vector<std::filesystem::path> watched_;
  std::optional<moetrain::Process> process_;
  std::optional<moetrain::ProcessEnd> end_;
};

Ended run(const std::string& name, std::vector<std::string> arguments);
// A script of /bin/sh, which finds the programs in the folder $B.
Ended shell(const std::string& script);

// A ckptd on a data directory, until the end of the scope; drained by SIGTERM. Its arenas have
// 256 MiB unless `more` says --arena.
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
  // A value of /metrics, of a daemon with --http 127.0.0.1:0. Fails the test if there is none.
  double metric(const std::string& name);

 private:
  Folder folder_;
  Program program_;
  bool killed_ = false;
};

std::string read_file(const std::string& path);
std::vector<nlohmann::json> read_lines(const std::string& path);
// Waits, bounded, until a line of the file fulfils the condition.
bool await_line(const std::string& path, bool (*condition)(const nlohmann::json&));

}  // namespace systemtest
