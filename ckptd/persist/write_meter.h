// WriteMeter: how many bytes a second the disk takes while it has something to write. Pure: it is
// told the time. The more bytes a stretch had, or the longer it took, the more it counts. Short
// ones with few bytes say more about latency than about the disk, which is at least as fast: they
// count if they were faster than it is believed to be, so that a disk that gets little because most
// is compressed can show what it can.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ckptd {

// Since some moment or other; never goes back.
std::chrono::nanoseconds monotonic_time();

class WriteMeter {
 public:
  using Time = std::chrono::nanoseconds;

  void began(Time now);  // a write
  void ended(Time now, uint64_t bytes);
  double bytes_per_second() const { return rate_; }  // 0: not known yet

 private:
  void end_stretch(Time now);

  size_t in_flight_ = 0;
  Time since_{};
  uint64_t bytes_ = 0;  // written since
  double rate_ = 0;
};

}  // namespace ckptd
