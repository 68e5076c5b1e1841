// Progress on stderr: a bar on a terminal; otherwise a line at intervals, if the work takes long.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace ckptctl {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  // Time before the first line, and between further lines.
  static constexpr std::chrono::seconds kFirstLineAfter{2};
  static constexpr std::chrono::seconds kLineEvery{10};
  struct Output {
    bool terminal = false;
    std::function<void(const std::string& text)> write;
    std::function<Clock::time_point()> now = Clock::now;
  };

  explicit Progress(std::string label);  // to stderr
  Progress(std::string label, Output output);
  void start(uint64_t bytes_total);
  void add(uint64_t bytes);  // 0: still working, no progress
  void finish();

 private:
  void draw();
  void draw_bar() const;
  std::string label_;
  Output output_;
  Clock::time_point next_line_;
  uint64_t bytes_ = 0;
  uint64_t bytes_total_ = 0;
};

}  // namespace ckptctl
