// PendingSnapshots: snapshots that the ranks handed to ckptd and have not yet reported as durable
// or failed. ckptd completes them even if the ranks are gone.
#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <set>
#include <string>

namespace moetrain {

class PendingSnapshots {
 public:
  void taking(uint64_t step) { steps_.insert(step); }
  // Durable, or failed.
  void settled(uint64_t step) { steps_.erase(step); }
  // Training rewinds to an earlier step.
  void rewound() { steps_.clear(); }
  // "the snapshots of steps 5, 10, 15": those newer than `saved`. Empty: there are none.
  std::string text(uint64_t saved) const {
    const std::set<uint64_t> newer(steps_.upper_bound(saved), steps_.end());
    if (newer.empty()) return "";
    const char* more = newer.size() == 1 ? "" : "s";
    return fmt::format("the snapshot{} of step{} {}", more, more, fmt::join(newer, ", "));
  }

 private:
  std::set<uint64_t> steps_;
};

}  // namespace moetrain
