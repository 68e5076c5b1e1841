// The signals that ask a program to stop, as a descriptor for poll(), once per process: SIGINT,
// SIGTERM, SIGHUP (a terminal that closes), SIGUSR1 and SIGUSR2 (Slurm's --signal and others),
// SIGXCPU (ulimit -t, Grid Engine). Without SIGPWR, which tells the run's own ckptd to drain.
//
// A signal that the program inherited as ignored stays ignored: under nohup SIGHUP stops nothing.
//
// Uses a handler that writes into a pipe, not a signalfd: libraries (OpenBLAS) start threads before
// main begins. These threads do not block the signals, so a signal that is blocked in our thread
// would be delivered to one of them, and end the process.
#pragma once

#include <signal.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace moetrain {

inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// From now on the signals are queued for take_stop_signal(), so that cleanup always runs. May be
// called again.
void hold_stop_signals();

// Readable when a signal has arrived. Precondition: hold_stop_signals() was called.
int stop_signals_fd();

// Takes the oldest signal that has arrived; nullopt: none.
std::optional<int> take_stop_signal();

// Calls `handler` for this signal, unless it was inherited as ignored.
void handle_unless_ignored(int number, void (*handler)(int));

// "SIGTERM".
std::string signal_name(int number);

// For a run that a signal ends before its ranks train.
std::string stopped_early(int number);

// Scope: a stop signal ends the program at once, with 128 + its number, after `clean_up`. For code
// that does not poll stop_signals_fd(). `clean_up` runs on another thread.
class ExitOnStopSignal {
 public:
  explicit ExitOnStopSignal(std::function<void()> clean_up);

 private:
  std::jthread thread_;
};

// Realtime signals from the supervisor to its ranks. No other program sends them, and they are
// never inherited as ignored.
int stop_rank_signal();   // all save and stop
int leave_rank_signal();  // this rank hands its state over and leaves

}  // namespace moetrain
