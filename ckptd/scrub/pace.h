// Pace: how fast background reads may go, and when they give way. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "ckptd/limits.h"

namespace ckptd {

using Time = std::chrono::nanoseconds;

// Lets so many bytes pass in a second; what was let pass at once is waited for afterwards. While
// others use the disk it lets nothing pass, but for one piece every limits::kScrubYieldMax: who
// never ends must not keep damage from being found for ever.
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
  static constexpr double kBurst = 0.25;  // seconds' worth, after a pause

  void see(bool others_busy) {
    if (!others_busy) {
      busy_since_.reset();
    } else if (!busy_since_) {
      busy_since_ = now_;
    }
  }

  uint64_t rate_ = 0;
  double budget_ = 0;  // bytes; less than 0: to be waited for
  Time now_{};
  Time last_read_{};
  std::optional<Time> busy_since_;
};

}  // namespace ckptd
