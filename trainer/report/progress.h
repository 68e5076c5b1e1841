// ProgressBar: the progress of a run, on stderr.
//
// On a terminal one line is redrawn in place; elsewhere (a file, CI) a plain line is written at
// most every `line_interval`, so that logs stay short. Nothing is written by a destructor: finish()
// or interrupt() end the line. Not thread-safe: one thread draws.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace moetrain::report {

using Clock = std::chrono::steady_clock;

class ProgressBar {
 public:
  struct Options {
    std::string label;    // e.g. the run's name
    uint64_t total = 0;   // steps of the whole run
    bool tty = false;     // redraw in place
    int columns = 80;     // of the terminal
    bool unicode = true;  // block characters, else ASCII
    std::chrono::milliseconds redraw_interval{100};
    std::chrono::milliseconds line_interval{5000};
    std::function<void(std::string_view)> write;  // where bytes go
    std::function<Clock::time_point()> now = Clock::now;
  };
  // Options for a file descriptor: asks the system whether it is a terminal and how wide; `write`
  // writes to it and ignores errors (progress is never a reason to fail).
  static Options for_descriptor(int fd, std::string label, uint64_t total);

  explicit ProgressBar(Options options);

  // `done` steps are complete; `detail` is short text such as "loss 2.143". Going back (steps are
  // redone after a failure) is fine.
  void update(uint64_t done, std::string_view detail);
  // Writes a whole line of text above the bar, e.g. "rank 2 lost at step 33".
  void interrupt(std::string_view line);
  // Draws the last state and ends the line.
  void finish();

 private:
  std::string bar_line() const;
  std::string plain_line() const;

  Options options_;
  Clock::time_point started_;
  Clock::time_point last_drawn_{};
  uint64_t first_done_ = 0;
  uint64_t done_ = 0;
  std::string detail_;
  std::string last_line_;  // written, where there is no terminal
  bool have_first_ = false;
  bool drawn_ = false;     // a bar stands on the current terminal line
  bool finished_ = false;  // finish() was called
};

// Columns of the terminal behind `fd`, `fallback` if it is none.
int terminal_columns(int fd, int fallback = 80);

}  // namespace moetrain::report
