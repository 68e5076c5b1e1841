#include "bench/common/control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "bench/common/usage.h"
#include "formats/base/unique_fd.h"
#include "trainer/elastic/process.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

namespace {

constexpr int kSampleMs = 10;

}  // namespace

Result<CtlRun> run_ctl(const DaemonProcess& daemon, std::vector<std::string> arguments) {
  const std::string log = daemon.scratch() + "/ckptctl.log";
  const ckpt::base::UniqueFd out(
      ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out.valid()) return make_error(ErrorCode::kIo, "{}: {}", log, std::strerror(errno));
  arguments.insert(arguments.begin(), moetrain::sibling_program("ckptctl"));
  moetrain::Process::Options options;
  options.arguments = std::move(arguments);
  options.environment = {"CKPTD_SOCKET=unix:" + daemon.socket()};
  options.descriptors = {{out.get(), STDOUT_FILENO}, {out.get(), STDERR_FILENO}};
  const auto start = std::chrono::steady_clock::now();
  CKPT_ASSIGN(moetrain::Process process, moetrain::Process::start(options));
  CtlRun run;
  std::optional<moetrain::ProcessEnd> end;
  while (!end) {
    pollfd ended{process.pidfd(), POLLIN, 0};
    ::poll(&ended, 1, kSampleMs);
    // Read while the process exists: its peak never falls, and is lost with the process.
    const Result<Usage> usage = usage_of(process.pid());
    if (usage.ok()) run.resident_bytes_peak = usage->resident_bytes_peak;
    end = process.reap();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  run.seconds = elapsed.count();
  if (end->exit_code == 0 && end->signal == 0) return run;
  std::stringstream log_text;
  log_text << std::ifstream(log).rdbuf();
  return make_error(ErrorCode::kFailedPrecondition, "ckptctl: {}: {}", end->text(), log_text.str());
}

}  // namespace bench
