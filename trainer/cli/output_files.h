// The files that `moetrain run` writes: --report, --metrics, --events and --schedule-trace.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace moetrain {

struct OutputFlags {
  std::string report, metrics, events, schedule_trace;  // paths; empty: not requested
  bool report_on_stdout = false;
};

// Pipes and devices among these files, open: a pipe's reader sees no end before the run's.
using HeldOutputs = std::shared_ptr<const std::vector<ckpt::base::UniqueFd>>;

// Checks that each of these files can be created, and that no file is named twice: the outputs
// would overwrite each other. A pipe, a terminal or /dev/null may take several outputs. Creates
// nothing. Errors name the flag: kIo: a file cannot be created, or no program reads a pipe;
// kInvalidArgument: two flags name one file.
ckpt::Result<HeldOutputs> check_outputs(const OutputFlags& outputs);

}  // namespace moetrain
