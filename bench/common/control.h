// ckptctl, as an operator would run it on a bench's daemon.
#pragma once

#include <string>
#include <vector>

#include "bench/common/daemon_process.h"
#include "formats/base/result.h"

namespace bench {

struct CtlRun {
  double seconds = 0;
  uint64_t resident_bytes_peak = 0;
};

// Runs `ckptctl` from the folder of this program to its end. What it prints is thrown away, unless
// it fails: then that is the error.
ckpt::Result<CtlRun> run_ctl(const DaemonProcess& daemon, std::vector<std::string> arguments);

}  // namespace bench
