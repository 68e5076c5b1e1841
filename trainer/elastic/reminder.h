// Reminder: when a condition that lasts is to be told again. Intervals grow: 4 s, 8 s, ... 1 min.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moetrain {

class Reminder {
 public:
  bool due(uint64_t now_ns) const { return now_ns >= next_ns_; }
  // It was told; the next time is one interval later.
  void told(uint64_t now_ns) {
    next_ns_ = now_ns + interval_ns_;
    interval_ns_ = std::min(2 * interval_ns_, kLongestNs);
  }
  // The condition is over: the next one is told at once.
  void reset() { *this = {}; }

 private:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  static constexpr uint64_t kLongestNs = 60 * kSecondNs;

  uint64_t next_ns_ = 0;
  uint64_t interval_ns_ = 4 * kSecondNs;
};

}  // namespace moetrain
