// ExpertRestore: restores single experts while the rest of the model keeps its state.
//
// Used for a rollback of experts: if the last replica of a few experts is lost, only these are read
// from ckptd, each unit at its newest version, and no rank rewinds. There are two steps, because
// several ranks take part, and all of them succeed or none:
//
//   1. every rank reads the experts that it will hold. Nothing has changed yet.
//   2. the ranks exchange the stamps of the versions (stamps.h), agree that all could read, count
//      the loss (PartialCheckpoint::roll_back, the same on every rank), and put() the versions
//      into their state
//
// Everything read is checked before use. ckptd and libckpt check every byte; this checks that no
// version is newer than requested, that its stamps are possible, and that all numbers are finite.
#pragma once

#include <ckpt/client.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "trainer/checkpoint/expert_stamps.h"
#include "trainer/checkpoint/restored_versions.h"
#include "trainer/checkpoint/state_memory.h"
#include "trainer/device/device.h"

namespace moetrain {

class ExpertVersions {
 public:
  struct Version {
    uint32_t expert = 0;     // position in the grid
    uint64_t step = 0;       // of its oldest unit: weights and optimizer may differ in age
    bool in_memory = false;  // a version that only ckptd's memory has: see ckpt_restored.level
  };

  // Reads each unit of these experts (positions in the grid, each once) at its newest version at or
  // before the point: in its lineage, then in each ancestor up to the fork. No commit needs to be
  // at the step. Ranks that give the same point get the same versions as long as no snapshot at or
  // before it is open: ckptd has settled all of them when an epoch begins.
  //
  // `units` are the session's registered units.
  //
  // kNotFound names a unit without a version, kCorrupt a version that is no state of this model.
  static Result<ExpertVersions> read(ckpt::client::Session& session, const std::string& run,
                                     const ckpt::client::ViewPoint& point,
                                     const std::vector<StateUnit>& units, const ExpertGrid& grid,
                                     std::span<const uint32_t> experts);

  const std::vector<Version>& versions() const { return versions_; }  // in the order of `experts`
  // Stamps of the experts read; all others are zero. The ranks exchange them as a maximum over all
  // ranks.
  const ExpertStamps& stamps() const { return stamps_; }
  uint64_t bytes_memory() const { return bytes_memory_; }
  uint64_t bytes_disk() const { return bytes_disk_; }
  const std::vector<RestoredUnit>& units() const { return units_; }  // of these experts
  // "unit NAME: ...": a newer version cannot be read.
  const std::vector<std::string>& notes() const { return notes_; }

  // Copies the versions into the rank's state, which holds these experts. Fails only if the device
  // fails. Afterwards call Model::parameters_changed().
  Status put(const StateMemory& memory, Device& device) const;

 private:
  explicit ExpertVersions(const ExpertGrid& grid) : stamps_(grid) {}

  std::vector<Version> versions_;
  ExpertStamps stamps_;
  std::vector<RestoredUnit> units_;
  std::vector<std::vector<std::byte>> bytes_;  // by unit
  uint64_t bytes_memory_ = 0;
  uint64_t bytes_disk_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace moetrain
