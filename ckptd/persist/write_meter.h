// WriteMeter: the disk's write rate in bytes per second while it has something to write. Pure: the
// caller passes the time. Stretches with more bytes, or of longer duration, get more weight. Short
// stretches with few bytes measure latency rather than the disk. They count only if they were
// faster than the estimate, so that a disk that gets little data because of compression can show
// its rate.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "formats/base/outstanding.h"

namespace ckptd {

// Monotonic, from an arbitrary origin.
std::chrono::nanoseconds monotonic_time();

class WriteMeter {
 public:
  using Time = std::chrono::nanoseconds;

  void began(Time now);  // a write
  void ended(Time now, uint64_t bytes);
  double bytes_per_second() const { return rate_; }  // 0: not known yet

 private:
  void end_stretch(Time now);

  ckpt::base::Outstanding in_flight_;
  Time since_{};
  uint64_t bytes_ = 0;  // written since `since_`
  double rate_ = 0;
};

}  // namespace ckptd
