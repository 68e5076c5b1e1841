// Deadline: the point in time at which a bounded wait ends. Every wait of libckpt has one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ckpt::lib {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  static Deadline after_ms(uint64_t milliseconds) {
    return Deadline(Clock::now() + std::chrono::milliseconds(milliseconds));
  }
  static Deadline now() { return Deadline(Clock::now()); }
  explicit Deadline(Clock::time_point at) : at_(at) {}

  bool expired() const { return Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }
  Deadline or_earlier(Clock::time_point other) const { return Deadline(std::min(at_, other)); }

  // For poll(2): rounded up, so that a wait never ends a moment before its deadline and spins.
  int poll_timeout_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }

 private:
  Clock::time_point at_;
};

// Nanoseconds since `start`, for the times of ckpt_snapshot_info.
inline uint64_t ns_since(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

}  // namespace ckpt::lib
