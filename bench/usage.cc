#include "bench/usage.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

namespace {

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

Result<Usage> parse_usage(std::string_view stat, std::string_view status, double ticks_per_second) {
  // The name, in parentheses, may hold anything; utime and stime are fields 14 and 15 of the line.
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos) {
    return make_error(ErrorCode::kCorrupt, "/proc/PID/stat: no name in '{}'", stat);
  }
  std::istringstream fields{std::string(stat.substr(name_end + 2))};
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  uint64_t user = 0;
  uint64_t system = 0;
  if (!(fields >> user >> system)) {
    return make_error(ErrorCode::kCorrupt, "/proc/PID/stat: no times in '{}'", stat);
  }
  constexpr std::string_view kPeak = "\nVmHWM:";
  const size_t peak = status.find(kPeak);
  uint64_t kib = 0;
  if (peak == std::string_view::npos ||
      !(std::istringstream{std::string(status.substr(peak + kPeak.size()))} >> kib)) {
    return make_error(ErrorCode::kCorrupt, "/proc/PID/status: no VmHWM");
  }
  return Usage{static_cast<double>(user + system) / ticks_per_second, kib << 10};
}

Result<Usage> usage_of(pid_t process) {
  const std::string folder = fmt::format("/proc/{}", process);
  const std::string stat = text_of(folder + "/stat");
  if (stat.empty()) {
    return make_error(ErrorCode::kUnavailable, "process {} has ended", process);
  }
  return parse_usage(stat, text_of(folder + "/status"),
                     static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

double own_cpu_seconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    seconds += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return seconds;
}

}  // namespace bench
