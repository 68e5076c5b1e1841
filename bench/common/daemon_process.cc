#include "bench/common/daemon_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

namespace {

constexpr std::chrono::seconds kReadyMax{30};
constexpr int kStopMs = 15'000;

}  // namespace

Result<std::unique_ptr<DaemonProcess>> DaemonProcess::start(const Options& options) {
  CKPT_ASSIGN(auto scratch, ScratchDirectory::make(options.directory));
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess(options, std::move(scratch)));
  CKPT_TRY(daemon->spawn());
  CKPT_TRY(daemon->wait_ready());
  return daemon;
}

Status DaemonProcess::spawn() {
  std::error_code failed;
  std::filesystem::create_directory(data(), failed);
  const ckpt::base::UniqueFd log_file(
      ::open(log().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!log_file.valid()) return make_error(ErrorCode::kIo, "{}: {}", log(), std::strerror(errno));
  // Scrubbing is off, so that only the measured work uses the disk.
  std::ofstream config(config_file());
  config << "scrub_rate = \"0\"\n";
  config << fmt::format("warm_pool = \"{}\"\n", options_.warm_pool_bytes);
  if (options_.warm_pool_bytes > 0) {
    config << fmt::format("session_arena = \"{}\"\n", options_.warm_pool_bytes);
  }
  config.close();
  if (!config) return make_error(ErrorCode::kIo, "{}: cannot write", config_file());
  moetrain::Process::Options process;
  process.arguments = {moetrain::sibling_program("ckptd"),
                       "--data",
                       data(),
                       "--config",
                       config_file(),
                       "--listen",
                       "unix:" + socket(),
                       "--arena",
                       std::to_string(options_.arena_bytes),
                       "--io",
                       options_.engine};
  process.descriptors = {{log_file.get(), STDOUT_FILENO}, {log_file.get(), STDERR_FILENO}};
  CKPT_ASSIGN(process_, moetrain::Process::start(process));
  return {};
}

Status DaemonProcess::wait_ready() {
  const auto deadline = std::chrono::steady_clock::now() + kReadyMax;
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd ended{process_->pidfd(), POLLIN, 0};
    const bool is_over = ::poll(&ended, 1, 10) == 1;
    std::stringstream log_text;
    log_text << std::ifstream(log()).rdbuf();
    if (("\n" + log_text.str()).find("\nready\n") != std::string::npos) return {};
    if (is_over) return make_error(ErrorCode::kUnavailable, "ckptd stopped: {}", log_text.str());
  }
  return make_error(ErrorCode::kDeadlineExceeded, "ckptd was not ready within {} s",
                    kReadyMax.count());
}

void DaemonProcess::stop(int signal) {
  if (!process_) return;
  process_->signal(signal);
  if (process_->wait(kStopMs)) return;
  process_->signal(SIGKILL);
  process_->wait(kStopMs);
}

Status DaemonProcess::restart() {
  CKPT_TRY(spawn());
  return wait_ready();
}

DaemonProcess::~DaemonProcess() { stop(); }

}  // namespace bench
