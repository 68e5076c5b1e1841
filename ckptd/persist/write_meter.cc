#include "ckptd/persist/write_meter.h"

#include <algorithm>
#include <cmath>

#include "ckptd/limits.h"

namespace ckptd {

namespace {

// No disk has such a latency.
constexpr double kLongSeconds = 1;

}  // namespace

std::chrono::nanoseconds monotonic_time() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

void WriteMeter::began(Time now) {
  in_flight_.begun();
  if (in_flight_.count() > 1) return;
  since_ = now;
  bytes_ = 0;
}

void WriteMeter::ended(Time now, uint64_t bytes) {
  in_flight_.ended();
  bytes_ += bytes;
  if (in_flight_.none() || bytes_ >= limits::kRateStretchBytesMax) end_stretch(now);
}

void WriteMeter::end_stretch(Time now) {
  const double seconds = std::chrono::duration<double>(now - since_).count();
  const double rate = seconds > 0 ? static_cast<double>(bytes_) / seconds : 0;
  const bool enough = bytes_ >= limits::kRateStretchBytesMin || seconds >= kLongSeconds;
  if (rate > 0 && (enough || (rate_ > 0 && rate > rate_))) {
    const double most = static_cast<double>(limits::kRateStretchBytesMax);
    const double weight = std::max(static_cast<double>(bytes_) / most, seconds / kLongSeconds);
    const double share = std::clamp(weight, 0.25, 1.0) / 2;
    // By ratio: a disk that becomes a thousand times slower is noticed after a few stretches.
    rate_ = rate_ == 0 ? rate : rate_ * std::pow(rate / rate_, share);
  }
  since_ = now;
  bytes_ = 0;
}

}  // namespace ckptd
