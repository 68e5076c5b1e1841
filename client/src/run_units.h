// RunUnits: the units of a run as this session knows them, and the growth that no commit has yet.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::lib {

// A unit as the trainer wants the run to have it.
struct GrowUnit {
  UnitSpec spec;
  fb::UnitCodec codec = fb::UnitCodec::Default;
  uint32_t flags = 0;
};

// State only; the session reports events. Ids are positions in the list. They stay the same in an
// epoch; of units that a commit has, for ever.
class RunUnits {
 public:
  const std::vector<UnitSpec>& all() const { return units_; }
  // The run has these; the others are pending.
  size_t known() const { return known_; }

  // The trainer has registered this list, the run's or a start of it.
  void registered(std::vector<UnitSpec> units);
  // The daemon told all grown units of the run. Drops what is pending. kCorrupt: they contradict
  // the registered list.
  Status epoch_started(const std::vector<std::unique_ptr<fb::UnitT>>& grown);
  // Returns the ids of these units; those that the run lacks become pending, in place of all that
  // were, unless a snapshot carries them (`in_flight`). On error nothing changes.
  // kFailedPrecondition, kUnitsDiffer: the run has a unit of this name that differs.
  Result<std::vector<UnitId>> grow(const std::vector<GrowUnit>& units, bool in_flight);

  // The growth to send with a snapshot of these units, which are ascending; empty: none.
  // kFailedPrecondition: the snapshot holds some pending units, but not all.
  Result<std::vector<std::unique_ptr<fb::GrownUnitT>>> growth_of(
      const std::vector<UnitId>& planned) const;
  // A snapshot with this growth is durable: the run has its units.
  void committed(const std::vector<std::unique_ptr<fb::GrownUnitT>>& grown);
  // Known units for whose codecs and flags a new daemon must be told; empty: none.
  std::vector<std::unique_ptr<fb::GrownUnitT>> told_again() const;

 private:
  struct Asked {
    fb::UnitCodec codec = fb::UnitCodec::Default;
    uint32_t flags = 0;
    bool operator==(const Asked&) const = default;
  };
  std::vector<std::unique_ptr<fb::GrownUnitT>> range(size_t from, size_t to) const;

  std::vector<UnitSpec> units_;
  size_t registered_ = 0;
  size_t known_ = 0;
  size_t unsent_from_ = 0;  // units from here on go with the next snapshot
  std::map<UnitId, Asked> asked_;
};

}  // namespace ckpt::lib
