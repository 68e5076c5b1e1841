// Outstanding: counts operations that have begun and not ended, such as writes in flight or leases.
//
// Begins and ends come in pairs, often from different callbacks. An end without its begin would
// free or reuse an object that is still in use, so it is an assert.
#pragma once

#include <cstdint>
#include <source_location>

#include "formats/base/assert.h"

namespace ckpt::base {

class Outstanding {
 public:
  void begun(uint64_t count = 1) { count_ += count; }
  // Names the caller in the assert.
  void ended(uint64_t count = 1, std::source_location at = std::source_location::current()) {
    if (count > count_) [[unlikely]] {
      assert_failed("more have ended than have begun", at.file_name(), static_cast<int>(at.line()),
                    {});
    }
    count_ -= count;
  }
  uint64_t count() const { return count_; }
  bool none() const { return count_ == 0; }

 private:
  uint64_t count_ = 0;
};

}  // namespace ckpt::base
