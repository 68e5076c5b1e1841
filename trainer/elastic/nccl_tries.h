// NcclTries: counts the consecutive groups in which NCCL failed on this rank. Pure.
//
// A group has failed if the next epoch opens before the group has completed a step. If a member was
// lost meanwhile, the loss explains the failure, and the count restarts. After kMax failures
// without a loss, more tries are useless.
#pragma once

#include <cstdint>
#include <utility>

namespace moetrain {

class NcclTries {
 public:
  static constexpr uint32_t kMax = 3;

  // The next epoch has opened. `lost`: a member of the previous epoch is missing.
  void epoch_opened(bool lost) {
    const bool failed = std::exchange(trying_, false);
    if (lost) failures_ = 0;
    if (failed && !lost) ++failures_;
  }
  void begins() { trying_ = true; }
  // The group has completed a step, or all ranks have left it in agreement.
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
