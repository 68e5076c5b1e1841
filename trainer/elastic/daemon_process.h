// DaemonProcess: the supervisor's own ckptd, restarted whenever it dies.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "trainer/elastic/process.h"

namespace moetrain {

// Signals to a whole job (by Slurm, systemd, a terminal) do not end it: the ranks get them, too,
// and still need it for a last save. It drains when the supervisor asks it to, or dies.
//
// Everything ckptd writes to stderr goes to `log_file`; its line "ready" says that it serves.
class DaemonProcess {
 public:
  struct Options {
    std::string data_dir;
    std::string socket;  // path
    std::string log_file;
    uint64_t arena_bytes = 0;
    std::vector<std::string> more_arguments;
  };
  static Result<DaemonProcess> start(const Options& options);

  // Descriptors to poll: the end of the process, and its log.
  int pidfd() const { return process_.pidfd(); }
  int log_fd() const { return log_.read.get(); }
  // Reads new log lines; true if ckptd became ready in them.
  bool read_log();
  bool ready() const { return ready_; }
  void kill() { process_.signal(9); }
  // Asks it to drain.
  void ask_to_stop() const;
  bool ended();
  // Kills the process if it still runs, and waits for its end.
  void kill_if_running();
  // Restarts an ended process with the same data. kUnavailable with its last log lines if it has
  // ended too often without becoming ready.
  Result<bool> restart_if_dead();

 private:
  DaemonProcess(const Options& options, Process process, Pipe log)
      : options_(options), process_(std::move(process)), log_(std::move(log)) {}
  static Result<Process> spawn(const Options& options, const Pipe& log);
  std::string last_words() const;

  // Limits on restarts. An exit before the first "ready" (a data directory in use) will repeat;
  // after it, the cause may be temporary. Kills have a higher limit: something that kills processes
  // at random may hit several starts in a row.
  static constexpr int kFirstExitsMax = 1;
  static constexpr int kExitsWithoutReadyMax = 3;
  static constexpr int kStartsWithoutReadyMax = 10;
  static constexpr size_t kLinesKept = 5;

  Options options_;
  Process process_;
  Pipe log_;
  std::string partial_line_;
  std::deque<std::string> lines_;
  bool ready_ = false;
  bool was_ready_ = false;  // any of the processes so far
  bool ended_ = false;      // since it was asked to stop
  int starts_without_ready_ = 1;
  int exits_without_ready_ = 0;
};

}  // namespace moetrain
