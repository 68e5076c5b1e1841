// Resources that a process has used, read from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "formats/base/result.h"

namespace bench {

struct Usage {
  double cpu_seconds = 0;            // of all its threads, including exited ones
  uint64_t resident_bytes_peak = 0;  // includes shared memory that the process has touched
};

// kUnavailable if the process does not exist.
ckpt::Result<Usage> usage_of(pid_t process);

// Parses the text of /proc/PID/status. kCorrupt if the field is missing.
ckpt::Result<uint64_t> parse_resident_peak(std::string_view status);

// CPU time of the calling process and of its children that have exited.
double own_cpu_seconds();

}  // namespace bench
