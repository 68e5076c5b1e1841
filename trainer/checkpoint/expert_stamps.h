// ExpertStamps: progress of each saved version of an expert.
//
// Experts of a partial checkpoint have different ages. A stamp belongs to one version of one part
// of an expert. It records the progress of the expert when it was saved, regardless of failed
// snapshots: the number of AdamW updates (which roll back with the moments), and the number of
// tokens behind those updates (which measures a loss).
//
// Stamps lie in the trainer unit, not with the experts: a stamp changes with every snapshot, while
// an expert with unchanged bytes must be recognised as unchanged. Every trainer unit has the newest
// known stamp of every expert; only stamps of its own snapshot are certain. So the stamp of a
// version is in the view's trainer unit. If a snapshot in between failed, the stamp is in the
// trainer unit of the commit that saved the version (take_stamps).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/checkpoint/units.h"
#include "trainer/partial/experts.h"

namespace moetrain {

enum class ExpertPart : uint8_t { kWeights, kOptimizer };
// The part of an expert that the unit stores.
ExpertPart part_of(const StateUnit& unit);

struct ExpertStamp {
  int64_t snapshot = 0;  // number of the snapshot that saved it, counted within its lineage
  int64_t tokens = 0;    // tokens behind the updates in the expert's state (trainer/partial/plt.h)
  int64_t updates = 0;   // AdamW updates of the expert so far
  int64_t step = 0;      // step of the snapshot
  bool operator==(const ExpertStamp&) const = default;
};
static_assert(sizeof(ExpertStamp) == 32);
inline constexpr uint64_t kStampValues = 4;

// The stamps of all experts, two for each: of its weights and of its moments. Stamps of experts
// that other ranks have restored are zero until exchanged.
class ExpertStamps {
 public:
  explicit ExpertStamps(const ExpertGrid& grid) : grid_(grid), stamps_(2 * grid.size()) {}

  ExpertStamp& at(ExpertPart part, size_t expert) { return stamps_[index(part, expert)]; }
  const ExpertStamp& at(ExpertPart part, size_t expert) const {
    return stamps_[index(part, expert)];
  }
  bool never_saved(size_t expert) const {
    return at(ExpertPart::kWeights, expert) == ExpertStamp{} &&
           at(ExpertPart::kOptimizer, expert) == ExpertStamp{};
  }
  ExpertStamp& of(const StateUnit& unit) { return stamps_[index(unit)]; }
  void clear() { stamps_.assign(stamps_.size(), {}); }

  const ExpertGrid& grid() const { return grid_; }
  // The stamps in the order of the trainer unit; see index().
  const std::vector<ExpertStamp>& list() const { return stamps_; }
  // The stamps as plain counts, for a maximum over all ranks.
  std::span<int64_t> counts() {
    return {reinterpret_cast<int64_t*>(stamps_.data()), kStampValues * stamps_.size()};
  }

  static size_t index(ExpertPart part, size_t expert) {
    return 2 * expert + (part == ExpertPart::kOptimizer ? 1 : 0);
  }
  size_t index(const StateUnit& unit) const {
    return index(part_of(unit), grid_.at(*unit.layer, *unit.expert));
  }

 private:
  ExpertGrid grid_;
  std::vector<ExpertStamp> stamps_;
};

// A unit of an expert, and the commit that wrote its bytes.
struct ExpertVersion {
  uint32_t unit = 0;
  uint32_t lineage = 0;
  uint64_t step = 0;
  bool operator==(const ExpertVersion&) const = default;
};

// Copies stamps of `versions` from a trainer unit's `table`; returns the versions without a stamp.
// A lineage has one commit per step, and the table is of the same lineage as the versions.
std::vector<ExpertVersion> take_stamps(const std::vector<ExpertStamp>& table,
                                       const std::vector<StateUnit>& units,
                                       const std::vector<ExpertVersion>& versions,
                                       ExpertStamps& stamps);

}  // namespace moetrain
