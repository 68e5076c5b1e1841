// SIGINT and SIGTERM as something to poll for, once per process.
//
// A handler that writes into a pipe, not a signalfd: libraries (OpenBLAS) start threads before main
// begins. Those block no signal, and one that is blocked in our thread would end the process in
// one of theirs.
#pragma once

#include <optional>

namespace moetrain {

// From here on the signals wait to be taken; nothing that was begun in between is left lying about.
// May be called again.
void hold_stop_signals();

// Readable when one has come. hold_stop_signals() was called.
int stop_signals_fd();

// The oldest that came, if one did.
std::optional<int> take_stop_signal();

}  // namespace moetrain
