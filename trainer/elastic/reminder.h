// Reminder: rate limit for reports of a lasting condition. Intervals grow: 4 s, 8 s, ... 1 min.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moetrain {

class Reminder {
 public:
  bool due(uint64_t now_ns) const { return now_ns >= next_ns_; }
  // The condition was reported; the next report is due one interval later.
  void reported(uint64_t now_ns) {
    next_ns_ = now_ns + interval_ns_;
    interval_ns_ = std::min(2 * interval_ns_, kLongestNs);
  }
  // The condition is over: the next one is due at once.
  void reset() { *this = {}; }

 private:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  static constexpr uint64_t kLongestNs = 60 * kSecondNs;

  uint64_t next_ns_ = 0;
  uint64_t interval_ns_ = 4 * kSecondNs;
};

}  // namespace moetrain
