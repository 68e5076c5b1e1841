// A ckptd of the bench's own, in a new directory.
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "bench/common/scratch.h"
#include "trainer/elastic/process.h"

namespace bench {

class DaemonProcess {
 public:
  struct Options {
    std::string directory;  // the store is made below it
    uint64_t arena_bytes = 0;
    uint64_t warm_pool_bytes = 0;  // in one piece
    std::string engine = "uring";
  };
  // Starts `ckptd` from the folder of this program and waits until it is ready.
  static ckpt::Result<std::unique_ptr<DaemonProcess>> start(const Options& options);
  // Stops it (SIGTERM, then SIGKILL) and removes its directory. It never outlives the bench.
  ~DaemonProcess();

  // Ends it, and with restart() there is another on the same store: nothing of it is in memory
  // then.
  void stop(int signal = SIGTERM);
  ckpt::Status restart();
  pid_t pid() const { return process_->pid(); }

  std::string socket() const { return scratch_.path() + "/ckptd.sock"; }
  std::string data() const { return scratch_.path() + "/data"; }
  const std::string& scratch() const { return scratch_.path(); }  // parent folder of the store

 private:
  DaemonProcess(const Options& options, ScratchDirectory scratch)
      : options_(options), scratch_(std::move(scratch)) {}
  ckpt::Status spawn();
  ckpt::Status wait_ready();
  std::string config_file() const { return scratch_.path() + "/ckptd.toml"; }
  std::string log() const { return scratch_.path() + "/ckptd.log"; }

  const Options options_;
  ScratchDirectory scratch_;
  std::optional<moetrain::Process> process_;
};

}  // namespace bench
