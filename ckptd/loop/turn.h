// Turn: the loop's clocks, and the work that callbacks leave for the end of the current turn.
//
// Callbacks of disk and executor run inside poll(). A callback that would destroy its own caller,
// or start other work in the middle of a change, defers that work. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace ckptd {

using Time = std::chrono::nanoseconds;  // virtual: since the daemon started

class Turn {
 public:
  explicit Turn(std::function<uint64_t()> wall_clock_ns)
      : wall_clock_ns_(std::move(wall_clock_ns)) {}

  // Time of the last tick.
  Time now() const { return now_; }
  void set_now(Time now) { now_ = now; }
  // Wall clock in nanoseconds since 1970, for times in history.
  uint64_t wall_clock_ns() const { return wall_clock_ns_(); }

  void defer(std::function<void()> work) { deferred_.push_back(std::move(work)); }
  bool has_deferred() const { return !deferred_.empty(); }
  // Runs the work deferred until now. Work deferred meanwhile waits for the next call.
  void run_deferred() {
    for (const auto& work : std::exchange(deferred_, {})) work();
  }

 private:
  const std::function<uint64_t()> wall_clock_ns_;
  Time now_{};
  std::vector<std::function<void()>> deferred_;
};

}  // namespace ckptd
