// NcclTries: in how many groups in a row this rank has tried NCCL in vain. Pure.
//
// A group has come to nothing if the next epoch opens before it has done a step. Where somebody was
// lost meanwhile, that explains it, and the count begins again. Otherwise NCCL does not come to
// work by itself after some more tries.
#pragma once

#include <cstdint>
#include <utility>

namespace moetrain {

class NcclTries {
 public:
  static constexpr uint32_t kMax = 3;

  // The next epoch; `lost`: without somebody who was in the one before.
  void epoch_opened(bool lost) {
    const bool failed = std::exchange(trying_, false);
    if (lost) failures_ = 0;
    if (failed && !lost) ++failures_;
  }
  void begins() { trying_ = true; }
  // It has done a step, or all have left it in agreement.
  void worked() {
    trying_ = false;
    failures_ = 0;
  }
  bool exhausted() const { return failures_ >= kMax; }

 private:
  bool trying_ = false;
  uint32_t failures_ = 0;
};

}  // namespace moetrain
