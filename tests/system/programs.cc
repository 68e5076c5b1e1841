#include "tests/system/programs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/file_changes.h"

namespace systemtest {

using ckpt::base::UniqueFd;
using moetrain::Process;
namespace fs = std::filesystem;

namespace {

constexpr int kProgramMs = 100'000;
const std::string kProgramsFolder = CKPT_PROGRAMS_DIR;

// Returns the response of a GET on this machine, headers included; a part if the connection breaks.
std::string get_http(uint16_t port, const std::string& path) {
  std::string answer;
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(request.size())) {
    return answer;
  }
  char part[4096];
  for (ssize_t got = 0; (got = ::recv(fd.get(), part, sizeof(part), 0)) > 0;) {
    answer.append(part, static_cast<size_t>(got));
  }
  return answer;
}

}  // namespace

Folder::Folder() {
  std::string name = (fs::temp_directory_path() / "ckpt-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr) << name;
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

nlohmann::json Ended::json() const {
  auto document = nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(document.is_discarded()) << out << err;
  return document;
}

Program::Program(const std::string& name, std::vector<std::string> arguments)
    : watched_{folder_.path()} {
  for (const fs::path argument : arguments) {
    const fs::path folder = argument.parent_path();
    if (argument.is_absolute() && fs::is_directory(folder)) watched_.push_back(folder);
  }
  Process::Options options;
  options.arguments = {name.starts_with('/') ? name : kProgramsFolder + "/" + name};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const UniqueFd out(::open((folder_ / "out").c_str(), flags, 0600));
  const UniqueFd err(::open((folder_ / "err").c_str(), flags, 0600));
  options.descriptors = {{out.get(), 1}, {err.get(), 2}};
  auto process = Process::start(options);
  EXPECT_TRUE(process.ok()) << process.error().message;
  if (process.ok()) process_.emplace(std::move(process).value());
}

Program::~Program() {
  if (!process_) return;
  process_->signal(SIGKILL);
  (void)process_->wait(kProgramMs);
}

Ended Program::wait() {
  Ended ended;
  const auto end = running() ? process_->wait(kProgramMs) : end_;
  ended.out = read_file(folder_ / "out");
  ended.err = read_file(folder_ / "err");
  EXPECT_TRUE(end.has_value()) << "still running:\n" << ended.err;
  if (end) ended.end = *end;
  return ended;
}

bool Program::running() {
  if (!process_ || end_) return false;
  end_ = process_->reap();
  return !end_;
}

bool Program::await(const std::function<bool()>& happened) {
  return await(happened, std::chrono::milliseconds(kProgramMs));
}

bool Program::await_children(const std::function<bool()>& happened) {
  return await(happened, std::chrono::milliseconds(1));
}

bool Program::await(const std::function<bool()>& happened, std::chrono::milliseconds poll_every) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kProgramMs);
  ckpt::test::FileChanges changes(watched_);
  for (;;) {
    if (happened()) return true;
    if (!running()) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    changes.wait(process_->pidfd(), std::min(left, poll_every));
  }
}

bool Program::await_error_output(const std::string& part) {
  return await([&] { return error_output().find(part) != std::string::npos; });
}

std::string Program::error_output() const { return read_file(folder_ / "err"); }

std::vector<Program::Child> Program::children() const {
  std::vector<Child> found;
  const std::string own = std::to_string(process_->pid());
  std::istringstream pids(read_file("/proc/" + own + "/task/" + own + "/children"));
  for (Child child; pids >> child.pid; found.push_back(child)) {
    child.arguments.clear();
    std::istringstream line(read_file("/proc/" + std::to_string(child.pid) + "/cmdline"));
    for (std::string argument; std::getline(line, argument, '\0');) {
      child.arguments.push_back(argument);
    }
  }
  // A zombie process has an empty command line.
  std::erase_if(found, [](const Child& child) { return child.arguments.empty(); });
  return found;
}

Ended run(const std::string& name, std::vector<std::string> arguments) {
  return Program(name, std::move(arguments)).wait();
}

Ended shell(const std::string& script) {
  return run("/bin/sh", {"-c", "B='" + kProgramsFolder + "'; " + script});
}

Ckptd::Ckptd(const std::string& data_dir, const std::vector<std::string>& more)
    : program_("ckptd", [&] {
        std::vector<std::string> all = {"--data", data_dir, "--listen", "unix:" + folder_ / "s"};
        if (std::ranges::find(more, "--arena") == more.end()) {
          all.insert(all.end(), {"--arena", "256MiB"});
        }
        all.insert(all.end(), more.begin(), more.end());
        return all;
      }()) {}

Ckptd::~Ckptd() {
  program_.signal(SIGTERM);
  EXPECT_EQ(program_.wait().code(), killed_ ? 128 + SIGKILL : 0);
}

// ckptctl, like every client, waits for a daemon that is starting.
Ended Ckptd::ctl(std::vector<std::string> arguments) const {
  std::vector<std::string> all = {"--socket", "unix:" + socket(), "--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run("ckptctl", all);
}

double Ckptd::metric(const std::string& name) {
  const std::string said = "http on 127.0.0.1:";
  EXPECT_TRUE(program_.await_error_output(said));
  const std::string log = program_.error_output();
  const auto at = log.find(said);
  if (at == std::string::npos) return std::nan("");
  const auto port = std::strtoul(log.c_str() + at + said.size(), nullptr, 10);
  const std::string metrics = get_http(static_cast<uint16_t>(port), "/metrics");
  const auto found = metrics.find("\n" + name + " ");
  EXPECT_NE(found, std::string::npos) << name << " is not in:\n" << metrics;
  if (found == std::string::npos) return std::nan("");
  return std::strtod(metrics.c_str() + found + 1 + name.size(), nullptr);
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) {
    auto document = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!document.is_discarded()) lines.push_back(std::move(document));
  }
  return lines;
}

bool await_line(const std::string& path, bool (*condition)(const nlohmann::json&)) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kProgramMs);
  ckpt::test::FileChanges changes({fs::path(path).parent_path()});
  for (;;) {
    for (const nlohmann::json& line : read_lines(path)) {
      if (condition(line)) return true;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    changes.wait(/*other=*/-1, left);
  }
}

}  // namespace systemtest
