// Supervisor::Impl: the state of a run under supervision.
#pragma once

#include <deque>
#include <optional>

#include "trainer/elastic/daemon_probe.h"
#include "trainer/elastic/daemon_process.h"
#include "trainer/elastic/events.h"
#include "trainer/elastic/process.h"
#include "trainer/elastic/record_file.h"
#include "trainer/elastic/recorder.h"
#include "trainer/elastic/run_outcome.h"
#include "trainer/elastic/save_monitor.h"
#include "trainer/elastic/schedule_trace.h"
#include "trainer/elastic/stop_signals.h"
#include "trainer/elastic/supervisor.h"
#include "trainer/elastic/watchdog.h"
#include "trainer/report/progress.h"
#include "trainer/report/render.h"

namespace moetrain {

struct Supervisor::Impl {
  // One rank's place; processes come and go in it.
  struct Slot {
    std::optional<Process> process;
    ckpt::base::UniqueFd events;
    EventReader reader;
    uint32_t gpu = 0;        // number of its GPU, if there are several
    bool saved = false;      // the last checkpoint is durable: a clean exit
    bool joined = false;     // it asked for an epoch: it handles stop_rank_signal() from now on
    bool in_epoch = false;   // of a group that has opened and that it has not lost
    uint64_t epoch = 0;      // the newest that it joined
    bool trained = false;    // it had all its state in that epoch, or in one before
    bool drained = false;    // it left on request
    bool abandoned = false;  // it never had state, and is not restarted
  };

  explicit Impl(RunOptions run_options);

  Status start_daemon(uint64_t arena_bytes);
  Status await_daemon();
  Status settle(const RankOptions& rank);
  int run();
  Status open_files();

  // supervisor_ranks.cc
  Status start_rank(uint32_t rank);
  uint32_t gpu_for(uint32_t rank) const;
  void read_events(uint32_t rank);
  void handle(const RankEvent& event);
  void on(const EventHeader& at, const JoiningEvent&);
  void on(const EventHeader& at, const ConnectingEvent&);
  void on(const EventHeader& at, const TrainingEvent& training);
  void on(const EventHeader& at, const StepEvent& step);
  void on(const EventHeader& at, const ScheduleEvent& schedule) {
    schedule_trace.add(at, schedule);
  }
  void on(const EventHeader& at, const TakingEvent& taking);
  void on(const EventHeader& at, const ReplannedEvent& replanned);
  void on(const EventHeader& at, const GroupLostEvent&) { slots[at.rank].in_epoch = false; }
  void on(const EventHeader& at, const RegroupingEvent&) { slots[at.rank].in_epoch = false; }
  void on(const EventHeader& at, const DrainedEvent&);
  void on(const EventHeader& at, const DyingEvent& dying);
  void on(const EventHeader& at, const LogEvent& log);
  void on(const EventHeader& at, const SavedEvent& saved);
  void on(const EventHeader& at, const FatalEvent& fatal);
  // SaveMonitor and Recorder handle these alone.
  template <OneOf<AliveEvent, NoticeEvent, PacingEvent, PostponedEvent, RestoringEvent, SavingEvent,
                  SnapshotEvent, StallingEvent>
                Other>
  void on(const EventHeader&, const Other&) {}
  void rank_ended(uint32_t rank, const ProcessEnd& end);
  bool any_rank_has_state() const;
  void start_joiners(uint64_t step);
  void restart_ranks(const std::string& lost);
  void kill_hanging_ranks();

  // supervisor_saves.cc
  UnsavedWatch::Daemon daemon_state() const;
  void watch_saves();
  std::string unsaved_cause() const;
  void report_line(const std::string& line);
  void stop_ranks();
  void stop_daemon();
  bool say_unsaved();
  std::string pending() const;
  void add_saves_to(report::Report& result) const;
  // unsaved_steps: those that are in no checkpoint at the end.
  void say_summary(report::Report result, report::Printed unsaved_steps);

  // supervisor.cc
  void watch_once();
  void daemon_ended();
  void kill_hanging_daemon();
  void take_signal();
  void stop_at_once(const std::string& why);
  void fail_run(ckpt::Error error);
  void kill_ranks();
  bool ranks_running() const;
  bool others_done() const;
  bool stopped_short() const;
  void say_stop_summary();
  const char* saved_state_text() const;
  bool say_unfired_faults();
  int finish();
  // Appends to one of the two files below; prints a line when lines begin to be lost.
  void record(RecordFile& file, const std::string& line);
  void say(const std::string& line);

  RunOptions options;
  std::optional<DaemonProcess> daemon;
  uint64_t daemon_arena_bytes = 0;   // what it was started with
  std::optional<DaemonProbe> probe;  // while ranks run
  std::optional<Recorder> recorder;
  std::optional<Watchdog> watchdog;
  std::optional<SaveMonitor> saves;
  std::optional<report::ProgressBar> bar;
  RecordFile metrics;
  RecordFile events;
  ScheduleTrace schedule_trace;
  std::deque<Slot> slots;     // a deque: slots of joiners are added while references are in use
  bool epoch_opened = false;  // a rank has joined one: there is a resume point, or none is needed
  bool epoch_seen = false;    // ranks that start from now on continue
  uint64_t continued_epoch = 0;
  uint64_t resumed_epoch = 0;  // the newest reported as resumed
  uint32_t restarts_in_a_row = 0;
  uint64_t failures_known = 0;  // from ranks; restarted ones do not know it
  double training_ms_known = 0;
  RunOutcome outcome;
};

}  // namespace moetrain
