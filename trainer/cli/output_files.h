// The files that `moetrain run` writes: --report, --metrics, --events and --schedule-trace.
#pragma once

#include <string>

#include "formats/base/result.h"

namespace moetrain {

struct OutputFlags {
  std::string report, metrics, events, schedule_trace;  // paths; empty: not asked for
  bool report_on_stdout = false;
};

// Whether each of these files can be made, and none is named twice: two of them in one file would
// overwrite each other. A pipe, a terminal or /dev/null may take several. Looks at the file system
// and makes nothing. Errors name the flag: kIo for a file that cannot be made; kInvalidArgument for
// one that two flags name.
ckpt::Status check_outputs(const OutputFlags& outputs);

}  // namespace moetrain
