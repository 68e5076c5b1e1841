// DaemonProcess: a ckptd of the supervisor's own, started anew whenever it dies.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "trainer/elastic/process.h"

namespace moetrain {

// Signals that are sent to a whole job (by Slurm, systemd, a terminal) do not end it: the ranks
// that get them, too, want to save first. It drains when the supervisor asks it to, or dies.
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

  // To wait for: the process' end, and its log.
  int pidfd() const { return process_.pidfd(); }
  int log_fd() const { return log_.read.get(); }
  // Reads what was logged; true if it became ready in these lines.
  bool read_log();
  bool ready() const { return ready_; }
  void kill() { process_.signal(9); }
  // Asks it to drain.
  void ask_to_stop() const;
  bool ended();
  // Kills it if it still runs, and waits for its end.
  void kill_if_running();
  // If it has ended: starts it again, with the same data. kUnavailable with its last words if it
  // has ended too often without becoming ready.
  Result<bool> restart_if_dead();

 private:
  DaemonProcess(const Options& options, Process process, Pipe log)
      : options_(options), process_(std::move(process)), log_(std::move(log)) {}
  static Result<Process> spawn(const Options& options, const Pipe& log);
  std::string last_words() const;

  // What makes one give up before it was ever ready (a data directory in use) will do so again; one
  // that has served may find a passing hindrance. One that was killed is not to blame: whoever
  // kills processes at random may hit several in a row while they start.
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
  bool was_ready_ = false;  // any of them
  bool ended_ = false;      // since it was asked to stop
  int starts_without_ready_ = 1;
  int exits_without_ready_ = 0;
};

}  // namespace moetrain
