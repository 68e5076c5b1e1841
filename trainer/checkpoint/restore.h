// Restore: brings a view's state into this rank's memory, whatever layout it was saved in.
#pragma once

#include <ckpt/client.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "trainer/checkpoint/device_link.h"
#include "trainer/checkpoint/restored_versions.h"
#include "trainer/checkpoint/state_memory.h"

namespace moetrain {

struct RestoreSummary {
  uint64_t bytes_memory = 0;           // came from ckptd's arenas
  uint64_t bytes_disk = 0;             // came from its segments
  std::vector<uint32_t> stale_units;   // restored from an older step than the view's
  std::vector<uint32_t> memory_units;  // restored from a version that is only in memory
  std::vector<std::string> notes;      // "unit NAME: ...": a newer version cannot be read
  std::vector<RestoredUnit> versions;  // of every requested unit
  // True if a unit that is in every snapshot came from an older one: the run never was in the
  // restored state.
  bool torn = false;
};

// Versions that a view includes: those on disk, or also newer ones that are only in ckptd's memory.
// Only ranks of an epoch use kMemory: ckptd pins the versions of the epoch's resume point until all
// ranks have restored.
enum class ViewLevel : uint8_t { kDurable, kMemory };

// Restores this rank's parts of the given units as of the view. On return every byte has been
// checked against its CRC. If the version of a unit cannot be read, an older one is restored, and
// the summary says so. memory.stamps() then has the stamps of all restored experts, unless the
// state is torn. After an error the memory is undefined. `link`: copies to memory of a GPU; null:
// all memory is the host's. Afterwards call Model::parameters_changed().
Result<RestoreSummary> restore_units(ckpt::client::Session& session, const std::string& run,
                                     const ckpt::client::ViewPoint& view,
                                     const std::vector<StateUnit>& units,
                                     const std::vector<uint32_t>& unit_ids,
                                     const StateMemory& memory, DeviceLink* link = nullptr,
                                     ViewLevel level = ViewLevel::kDurable);

// The newest commit of the lineage or its ancestors, as a view. It is found by its trainer unit,
// which every commit has. Like restores of members, this waits for snapshots that all ranks had
// staged before the epoch began. nullopt: there is no commit. kCorrupt: the trainer unit of the
// newest commit cannot be read.
Result<std::optional<ckpt::client::ViewPoint>> newest_commit(ckpt::client::Session& session,
                                                             const std::string& run,
                                                             uint32_t lineage,
                                                             const std::vector<StateUnit>& units);

// "unit U is from step 20 instead of 30: REASON". `note`: ckptd's note about the version of `step`.
std::string older_version_text(const std::string& unit, uint64_t step, const std::string& note);

// Restores experts' units at their newest version at or before the view's step; no commit at that
// step is needed. Clears their stamps: the ranks that had this version before know them.
Result<RestoreSummary> restore_older(ckpt::client::Session& session, const std::string& run,
                                     const ckpt::client::ViewPoint& view,
                                     const std::vector<StateUnit>& units,
                                     const std::vector<uint32_t>& experts_units,
                                     const StateMemory& memory, DeviceLink* link = nullptr);

// Restores the stamps of versions of experts' units, all of one line of history. The newest trainer
// unit at or before the point has the stamp of each expert's newest version. Stamps of other
// versions are restored by restore_stamps(). So a version whose own commit was pruned has its
// stamp, too.
Status restore_newest_stamps(ckpt::client::Session& session, const std::string& run,
                             const ckpt::client::ViewPoint& point,
                             const std::vector<StateUnit>& units,
                             std::vector<ExpertVersion> versions, ExpertStamps& stamps);

// Restores stamps from the trainer units of the commits that saved the versions; each is read once.
// kCorrupt: a trainer unit no longer exists, or lacks the stamp of a version.
Status restore_stamps(ckpt::client::Session& session, const std::string& run,
                      const std::vector<StateUnit>& units, std::vector<ExpertVersion> versions,
                      ExpertStamps& stamps);

}  // namespace moetrain
