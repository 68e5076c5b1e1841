// Sums over rows of floats, in an order that is fixed and still fits vector registers.
//
// Without -ffast-math the compiler may not reorder a float sum, so one running sum is one slow
// chain of additions. Eight running sums, added up at the end in a fixed order, vectorise and give
// the same bits on every call.
#pragma once

#include <cstdint>

namespace ckpt::kernels {

inline constexpr int64_t kLanes = 8;

namespace internal {
inline float add_lanes(const float (&lane)[kLanes]) {
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}
}  // namespace internal

inline float dot(const float* a, const float* b, int64_t count) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lane[j] += a[i + j] * b[i + j];
  }
  for (int64_t j = 0; i + j < count; ++j) lane[j] += a[i + j] * b[i + j];
  return internal::add_lanes(lane);
}

inline float sum(const float* a, int64_t count) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lane[j] += a[i + j];
  }
  for (int64_t j = 0; i + j < count; ++j) lane[j] += a[i + j];
  return internal::add_lanes(lane);
}

}  // namespace ckpt::kernels
