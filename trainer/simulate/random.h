// Random: numbers that depend on a seed and nothing else, so that a simulation can be repeated.
#pragma once

#include <cmath>
#include <cstdint>

namespace moetrain::simulate {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
// Not <random>: its distributions differ between standard libraries.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }
  // 0 .. bound - 1. The bias is below bound / 2^64.
  uint64_t below(uint64_t bound) { return next() % bound; }
  // In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  // Exponential with this mean.
  double exponential(double mean) { return -mean * std::log1p(-unit()); }

 private:
  uint64_t state_;
};

}  // namespace moetrain::simulate
