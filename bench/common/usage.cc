#include "bench/common/usage.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <fstream>
#include <sstream>
#include <string>

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

namespace {

std::string status_of(pid_t process) {
  std::stringstream text;
  text << std::ifstream(fmt::format("/proc/{}/status", process)).rdbuf();
  return text.str();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

Result<uint64_t> parse_resident_peak(std::string_view status) {
  constexpr std::string_view kPeak = "\nVmHWM:";
  const size_t peak = status.find(kPeak);
  uint64_t kib = 0;
  if (peak == std::string_view::npos ||
      !(std::istringstream{std::string(status.substr(peak + kPeak.size()))} >> kib)) {
    return make_error(ErrorCode::kCorrupt, "/proc/PID/status: no VmHWM");
  }
  return kib << 10;
}

// By the process's clock: /proc/PID/stat counts in hundredths of a second, a tenth of what one
// sample takes.
Result<Usage> usage_of(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &used) != 0) {
    return make_error(ErrorCode::kUnavailable, "process {} has ended", process);
  }
  CKPT_ASSIGN(const uint64_t peak, parse_resident_peak(status_of(process)));
  return Usage{static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9, peak};
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
