// ExpertStamps: what the versions of experts say about themselves.
//
// In a partial checkpoint experts are of different ages. Every expert unit ends with a stamp, so
// that a restored version tells by itself how far its expert had come when it was saved, whatever
// snapshots failed in between: how many updates AdamW had made (which roll back with the moments),
// and how many tokens those updates came from (which says what is lost).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/partial/experts.h"

namespace moetrain {

enum class ExpertPart : uint8_t { kWeights, kOptimizer };

// Three I64 at the end of an expert unit.
struct ExpertStamp {
  int64_t snapshot = 0;  // number of the snapshot that saved it, counted in its line of history
  int64_t tokens = 0;    // whose updates the expert's state held (trainer/partial/plt.h)
  int64_t updates = 0;   // AdamW steps it had been through
  bool operator==(const ExpertStamp&) const = default;
};
static_assert(sizeof(ExpertStamp) == 24);
inline constexpr uint64_t kStampValues = 3;

// The stamps of all experts, two for each: its weights' and its moments'. A rank's units are read
// from and restored into it; those of experts that other ranks hold are zero until exchanged.
class ExpertStamps {
 public:
  explicit ExpertStamps(const ExpertGrid& grid) : stamps_(2 * grid.size()) {}

  ExpertStamp& at(ExpertPart part, size_t expert) { return stamps_[index(part, expert)]; }
  const ExpertStamp& at(ExpertPart part, size_t expert) const {
    return stamps_[index(part, expert)];
  }
  void clear() { stamps_.assign(stamps_.size(), {}); }

  // As plain counts, for a maximum over all ranks.
  std::span<int64_t> counts() {
    return {reinterpret_cast<int64_t*>(stamps_.data()), kStampValues * stamps_.size()};
  }

 private:
  static size_t index(ExpertPart part, size_t expert) {
    return 2 * expert + (part == ExpertPart::kOptimizer ? 1 : 0);
  }
  std::vector<ExpertStamp> stamps_;
};

}  // namespace moetrain
