// ExpertStamps: what the versions of experts say about themselves.
//
// In a partial checkpoint experts are of different ages. A stamp tells of one version of one part
// of an expert how far the expert had come when it was saved, whatever snapshots failed in between:
// how many updates AdamW had made (which roll back with the moments), and how many tokens those
// updates came from (which says what is lost).
//
// Stamps lie in the trainer unit, not with the experts: a stamp changes with every snapshot, and an
// expert whose bytes never change must be seen to stand still. Every trainer unit has the newest
// stamp of all experts, as its run believed then; of those that its own snapshot took it is
// certain. So the stamp of a version is in the view's trainer unit, unless a snapshot in between
// failed: then in that of the commit which saved the version (take_stamps).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/checkpoint/units.h"
#include "trainer/partial/experts.h"

namespace moetrain {

enum class ExpertPart : uint8_t { kWeights, kOptimizer };
// Of an expert's unit.
ExpertPart part_of(const StateUnit& unit);

struct ExpertStamp {
  int64_t snapshot = 0;  // number of the snapshot that saved it, counted in its line of history
  int64_t tokens = 0;    // whose updates the expert's state held (trainer/partial/plt.h)
  int64_t updates = 0;   // AdamW steps it had been through
  int64_t step = 0;      // of the snapshot
  bool operator==(const ExpertStamp&) const = default;
};
static_assert(sizeof(ExpertStamp) == 32);
inline constexpr uint64_t kStampValues = 4;

// The stamps of all experts, two for each: its weights' and its moments'. Those of experts that
// other ranks have restored are zero until exchanged.
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
  // As the trainer unit has them; index() says where.
  const std::vector<ExpertStamp>& list() const { return stamps_; }
  // As plain counts, for a maximum over all ranks.
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

// A unit of an expert, and the commit that its bytes are from.
struct ExpertVersion {
  uint32_t unit = 0;
  uint32_t lineage = 0;
  uint64_t step = 0;
  bool operator==(const ExpertVersion&) const = default;
};

// Takes from a trainer unit's `table` the stamps of the versions that it knows; returns the others.
// A line of history has one commit of a step, and the table is of the same line as the versions.
std::vector<ExpertVersion> take_stamps(const std::vector<ExpertStamp>& table,
                                       const std::vector<StateUnit>& units,
                                       const std::vector<ExpertVersion>& versions,
                                       ExpertStamps& stamps);

}  // namespace moetrain
