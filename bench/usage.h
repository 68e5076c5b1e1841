// What a process has used of the machine, as /proc tells it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "formats/base/result.h"

namespace bench {

struct Usage {
  double cpu_seconds = 0;            // of all its threads, those that have ended included
  uint64_t resident_bytes_peak = 0;  // shared memory that it has touched included
};

// kUnavailable if there is no such process any more.
ckpt::Result<Usage> usage_of(pid_t process);

// From the text of /proc/PID/status. kCorrupt if the field is not there.
ckpt::Result<uint64_t> parse_resident_peak(std::string_view status);

// Of the calling process, its children that have ended included.
double own_cpu_seconds();

}  // namespace bench
