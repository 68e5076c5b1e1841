// Pace: rate limit of background reads, and their priority below other reads. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "ckptd/limits.h"

namespace ckptd {

using Time = std::chrono::nanoseconds;

// Lets this many bytes pass per second; a burst is waited for afterwards. While others use the disk
// it blocks all reads except one piece per limits::kScrubYieldMax: permanent load must not prevent
// the detection of damage.
class Pace {
 public:
  void set_rate(uint64_t bytes_per_second) {
    rate_ = bytes_per_second;
    budget_ = std::min(budget_, static_cast<double>(rate_) * kBurst);
  }
  void tick(Time now, bool others_busy) {
    const double seconds = std::chrono::duration<double>(now - now_).count();
    const auto rate = static_cast<double>(rate_);
    budget_ = std::min(budget_ + rate * seconds, rate * kBurst);
    now_ = now;
    see(others_busy);
  }
  bool may_read(uint64_t bytes, bool others_busy) {
    see(others_busy);
    if (yields() || budget_ < 0) return false;
    budget_ -= static_cast<double>(bytes);
    last_read_ = now_;
    return true;
  }
  bool yields() const {
    return busy_since_ && now_ - std::max(*busy_since_, last_read_) < limits::kScrubYieldMax;
  }

 private:
  static constexpr double kBurst = 0.25;  // burst after a pause, in seconds of the rate

  void see(bool others_busy) {
    if (!others_busy) {
      busy_since_.reset();
    } else if (!busy_since_) {
      busy_since_ = now_;
    }
  }

  uint64_t rate_ = 0;
  double budget_ = 0;  // bytes; less than 0: wait
  Time now_{};
  Time last_read_{};
  std::optional<Time> busy_since_;
};

}  // namespace ckptd
