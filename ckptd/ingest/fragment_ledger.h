// FragmentLedger: what one rank declared it would contribute to a snapshot, and what of that has
// not been sealed yet. A declared range may arrive in pieces, in several slabs, in any order.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "formats/base/result.h"
#include "formats/plan.h"
#include "formats/unit.h"

namespace ckptd {

class FragmentLedger {
 public:
  using Specs = std::vector<ckpt::UnitSpec>;

  // Checks each range against its unit (one of `units`, which is ascending) and the ranges against
  // each other. Errors name unit and range.
  static ckpt::Result<FragmentLedger> declare(const std::vector<ckpt::UnitRange>& ranges,
                                              const std::vector<ckpt::UnitId>& units,
                                              const Specs& specs);

  // Takes the range off what is missing. An error if any byte of it was not declared, or was sealed
  // before. After an error the ledger is as it was.
  ckpt::Status seal(const ckpt::UnitRange& range, const Specs& specs);

  bool complete() const { return missing_.empty(); }
  // Some range that is missing, to name it in a message.
  std::optional<ckpt::UnitRange> first_missing() const;
  const std::vector<ckpt::UnitRange>& declared() const { return declared_; }

 private:
  // (unit, begin) -> end. Disjoint.
  using Intervals = std::map<std::pair<ckpt::UnitId, uint64_t>, uint64_t>;
  static Intervals::const_iterator find(const Intervals& intervals, const ckpt::UnitRange& range);

  std::vector<ckpt::UnitRange> declared_;  // ascending
  Intervals missing_;
};

}  // namespace ckptd
