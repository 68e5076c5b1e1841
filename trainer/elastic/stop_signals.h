// The signals that ask a program to stop, as something to poll for, once per process: SIGINT,
// SIGTERM, SIGHUP (a terminal that closes), SIGUSR1 and SIGUSR2 (Slurm's --signal and others).
//
// A signal that the program inherited as ignored stays ignored: under nohup SIGHUP stops nothing.
//
// A handler that writes into a pipe, not a signalfd: libraries (OpenBLAS) start threads before main
// begins. Those block no signal, and one that is blocked in our thread would end the process in
// one of theirs.
#pragma once

#include <signal.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace moetrain {

inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// From here on the signals wait to be taken; nothing that was begun in between is left lying about.
// May be called again.
void hold_stop_signals();

// Readable when one has come. hold_stop_signals() was called.
int stop_signals_fd();

// The oldest that came, if one did.
std::optional<int> take_stop_signal();

// Calls `handler` for this signal, unless it was inherited as ignored.
void handle_unless_ignored(int number, void (*handler)(int));

// "SIGTERM".
std::string signal_name(int number);

// While it lives, a stop signal ends the program at once, with 128 + its number, after `clean_up`:
// for stretches in which nobody looks at stop_signals_fd(). `clean_up` runs on another thread.
class ExitOnStopSignal {
 public:
  explicit ExitOnStopSignal(std::function<void()> clean_up);

 private:
  std::jthread thread_;
};

// Realtime signals from the supervisor to its ranks. Nobody else sends them, and they are never
// inherited as ignored.
int stop_rank_signal();   // all save and stop
int leave_rank_signal();  // this rank hands its state over and leaves

}  // namespace moetrain
