// WaitTime: the timeout of `wait`, distributed over the calls that it bounds.
//
// The connection and the first request together get at least kLeast, so that an existing commit is
// found whatever the timeout. All later calls end with the timeout.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ckptctl {

class WaitTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLeast{1};

  explicit WaitTime(std::chrono::nanoseconds timeout, Clock::time_point start = Clock::now())
      : end_(start + std::min<std::chrono::nanoseconds>(timeout, kMost)),
        first_end_(std::max(end_, start + kLeast)) {}

  Clock::time_point end() const { return end_; }
  bool over(Clock::time_point now = Clock::now()) const { return now >= end_; }
  // Milliseconds left for a call; at least 1.
  uint32_t ms_left(Clock::time_point now = Clock::now()) const { return ms_from(now, end_); }
  // Same, for the connection and the first request.
  uint32_t ms_left_at_first(Clock::time_point now = Clock::now()) const {
    return ms_from(now, first_end_);
  }

 private:
  // A later end would overflow the clock.
  static constexpr std::chrono::hours kMost{24 * 365 * 100};

  static uint32_t ms_from(Clock::time_point now, Clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now).count();
    return static_cast<uint32_t>(std::clamp<int64_t>(left, 1, UINT32_MAX));
  }

  Clock::time_point end_;
  Clock::time_point first_end_;
};

}  // namespace ckptctl
