// RestoreSpeeds: recent speed of restores, by source. Pure.
//
// A restore that reads from one source alone yields its speed: from the request to its last window,
// the trainer's part included. Small restores measure only latency, and are left out.
#pragma once

#include <chrono>
#include <cstdint>

namespace ckptd {

class RestoreSpeeds {
 public:
  static constexpr uint64_t kBytesMin = 1 << 20;

  // Bytes that a restore received, by source.
  struct Bytes {
    uint64_t memory = 0;
    uint64_t segment = 0;
  };

  void finished(const Bytes& bytes, std::chrono::nanoseconds took) {
    if (took.count() <= 0 || (bytes.memory > 0) == (bytes.segment > 0)) return;
    const uint64_t all = bytes.memory + bytes.segment;
    if (all < kBytesMin) return;
    double& known = bytes.memory > 0 ? memory_ : segment_;
    const double now = static_cast<double>(all) / std::chrono::duration<double>(took).count();
    known = known == 0 ? now : (known + now) / 2;
  }
  // Bytes per second; 0: unknown.
  double memory() const { return memory_; }
  double segment() const { return segment_; }

 private:
  double memory_ = 0;
  double segment_ = 0;
};

}  // namespace ckptd
