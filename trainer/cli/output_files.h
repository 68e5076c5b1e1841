// The files that `moetrain run` writes: --report, --metrics, --events and --schedule-trace.
#pragma once

#include <string>

#include "formats/base/result.h"

namespace moetrain {

struct OutputFlags {
  std::string report, metrics, events, schedule_trace;  // paths; empty: not requested
  bool report_on_stdout = false;
};

// Checks that each of these files can be created, and that no file is named twice: the outputs
// would overwrite each other. A pipe, a terminal or /dev/null may take several outputs. Creates
// nothing. Errors name the flag: kIo: a file cannot be created; kInvalidArgument: two flags name
// one file.
ckpt::Status check_outputs(const OutputFlags& outputs);

}  // namespace moetrain
