// Timed: adds the time it lives, in milliseconds, to a total.
#pragma once

#include <chrono>

namespace moetrain {

class Timed {
 public:
  explicit Timed(double& total_ms) : total_ms_(total_ms) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() {
    total_ms_ +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
            .count();
  }

 private:
  double& total_ms_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace moetrain
