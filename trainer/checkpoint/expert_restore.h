// ExpertRestore: single experts come back while everything else goes on.
//
// What a rollback of experts needs: when the last replica of a few experts is gone, only these are
// taken from ckptd, each of its units at its newest version, and nobody rewinds. Two steps, because
// several ranks take part and either all of them go on or none:
//
//   1. every rank reads the experts it is to hold. Nothing has changed yet.
//   2. the ranks exchange the stamps of what they read (stamps.h), agree that all could read, count
//      what is lost (PartialCheckpoint::roll_back, the same on every rank), and put() what they
//      read
//
// What was read is checked before anybody believes it: every byte by ckptd and libckpt, here that
// it is not newer than asked for, that its stamps can be, and that no number is NaN or infinite.
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

  // Each unit of these experts (positions in the grid, each once) at its newest version at or
  // before the point: in its lineage, then in each ancestor up to the fork. No commit needs to be
  // at the step. Ranks that give the same point get the same versions as long as no snapshot at or
  // before it is open: ckptd has settled all of them when an epoch begins.
  //
  // `units` are those the session has registered.
  //
  // kNotFound names a unit that has no version, kCorrupt what cannot be a state of this model.
  static Result<ExpertVersions> read(ckpt::client::Session& session, const std::string& run,
                                     const ckpt::client::ViewPoint& point,
                                     const std::vector<StateUnit>& units, const ExpertGrid& grid,
                                     std::span<const uint32_t> experts);

  const std::vector<Version>& versions() const { return versions_; }  // as asked for
  // Of the experts that were read; all others are zero. To be exchanged by a maximum over all
  // ranks.
  const ExpertStamps& stamps() const { return stamps_; }
  uint64_t bytes_memory() const { return bytes_memory_; }
  uint64_t bytes_disk() const { return bytes_disk_; }
  const std::vector<RestoredUnit>& units() const { return units_; }  // of these experts
  // "unit NAME: ...": a newer version cannot be read.
  const std::vector<std::string>& notes() const { return notes_; }

  // Into the rank's state, which holds these experts. Fails as the device fails, no other way. The
  // model must be told: Model::parameters_changed().
  Status put(const StateMemory& memory, Device& device) const;

 private:
  explicit ExpertVersions(const ExpertGrid& grid) : stamps_(grid) {}

  std::vector<Version> versions_;
  ExpertStamps stamps_;
  std::vector<RestoredUnit> units_;
  std::vector<std::vector<std::byte>> bytes_;  // of each of them
  uint64_t bytes_memory_ = 0;
  uint64_t bytes_disk_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace moetrain
