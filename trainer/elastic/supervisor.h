// Supervisor: `moetrain run`. Starts the ranks of this machine (and a ckptd, unless one is given),
// restarts dead processes, and writes the report.
//
// One thread, one poll loop over the ranks' event pipes, the pidfds of all children and the stop
// signals.
// A rank that dies is restarted alone; the survivors keep running and meet it in the next epoch. In
// an elastic run dead ranks are not restarted once the first epoch trains: the survivors continue.
// If no rank with state is left, all ranks restart.
//
// A FatalEvent of a rank ends the run, because a restart would fail the same way. Exception: a
// joining rank that has never trained. After a stop signal (stop_signals.h) the ranks save their
// current step, and the run ends with 128 + the signal's number. A second signal ends the run at
// once, and so does the first one if ckptd does not answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/elastic/rank_options.h"
#include "trainer/elastic/unsaved_watch.h"

namespace moetrain {

struct RankAt {
  uint32_t rank = 0;
  uint64_t step = 0;
};

// A rank kills itself when it enters this phase of a membership change (kPhases).
struct PhaseKill {
  uint32_t rank = 0;
  std::string phase;
};
// This number of ranks starts when this step is complete.
struct RankJoin {
  uint32_t count = 0;
  uint64_t step = 0;
};

struct RunOptions {
  RankOptions rank;            // of every rank; `rank.rank` and `rank.kill_at` are filled in here
  std::string on_loss_reason;  // for users: the origin of rank.elastic
  std::vector<RankAt> kills;
  std::vector<RankAt> leaves;  // elastic: ranks that leave after a step
  std::vector<PhaseKill> phase_kills;
  std::vector<RankJoin> joins;
  std::vector<uint64_t> daemon_kills;  // steps after which our own ckptd is killed
  // A rank's process hangs if it sends no heartbeat for this long; 0: never.
  uint32_t heartbeat_timeout_ms = 10'000;
  // Our own ckptd is killed and restarted if it does not answer for this long; 0: never.
  uint32_t daemon_timeout_ms = 20'000;
  UnsavedOptions unsaved;     // its socket is filled in here
  uint32_t restarts_max = 5;  // of ranks, in a row without a completed step
  bool own_daemon = true;     // listening on rank.socket, with its data in data_dir
  std::string data_dir;
  bool keeps_data = true;  // checkpoints outlive the run, and can be resumed
  std::string log_file;
  std::string io;  // ckptd's --io; empty: its default
  std::string report_file;
  std::string metrics_file;
  std::string events_file;          // every event of every rank, in the order of arrival
  std::string schedule_trace_file;  // of the first steps, if rank.trace_schedule
  bool print_report = false;        // the report's JSON on stdout
};

class Supervisor {
 public:
  explicit Supervisor(RunOptions options);
  ~Supervisor();  // kills what still runs

  // Starts our own ckptd, if the options want one, and waits until it is ready. Errors: its last
  // log lines, or kAborted if a signal arrived first (see stop_signal()).
  Status start_daemon();
  std::optional<int> stop_signal() const;
  // For a run that resumes, once ckptd has returned the commit: takes over `rank`'s configuration,
  // placement and commit (lineage and step). Restarts our own ckptd if it needs a larger arena.
  Status settle(const RankOptions& rank);
  // Runs to the end. Returns the exit code of the program: 128 + n if signal n, to the supervisor
  // or to all ranks, stopped the run before its last step.
  int run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetrain
