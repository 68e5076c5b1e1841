// FragmentLedger: the ranges that one rank declared for a snapshot, and the part that is not sealed
// yet. A declared range may arrive in pieces, in several slabs, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
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

  // Marks the range as sealed. Fails if any byte was not declared, or was sealed before; the ledger
  // is then unchanged.
  ckpt::Status seal(const ckpt::UnitRange& range, const Specs& specs);

  bool complete() const { return left_ == 0; }
  // Some missing range, for a message.
  std::optional<ckpt::UnitRange> first_missing() const;
  const std::vector<ckpt::UnitRange>& declared() const { return declared_; }

 private:
  enum class Sealed : uint8_t { kNothing, kPart, kAll };

  std::optional<size_t> find_declared(const ckpt::UnitRange& range) const;
  bool take_missing(const ckpt::UnitRange& range);
  std::optional<ckpt::UnitRange> first_missing_of(const ckpt::UnitRange& declared) const;

  std::vector<ckpt::UnitRange> declared_;  // ascending, disjoint
  std::vector<Sealed> sealed_;             // by index in declared_
  size_t left_ = 0;                        // declared ranges that are not fully sealed
  // Missing parts of partly sealed ranges: (unit, begin) -> end. Usually empty, because ranges
  // arrive whole.
  std::map<std::pair<ckpt::UnitId, uint64_t>, uint64_t> missing_;
};

}  // namespace ckptd
