// State of snapshots that are open in ingest.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ckptd/alarms/judge.h"
#include "ckptd/alarms/not_finite.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/ingest/ingest.h"
#include "ckptd/observe/snapshot_timings.h"
#include "ckptd/persist/persist.h"
#include "ckptd/snapshots/needs.h"
#include "ckptd/snapshots/shared_versions.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

struct OpenSnapshotState {
  struct Share {
    std::set<uint32_t> leased;  // with the client
    uint32_t held = 0;          // leased or sealed, for this snapshot
    bool streams = false;       // each slab is free again once it is written
  };
  std::string run_name;
  UnitSpecList units;  // of the run and of its growth; set when its first member begins
  size_t grown = 0;    // units at the end of the list that the run lacked then
  std::map<ckpt::SessionId, Share> shares;
  std::vector<WrittenExtent> extents;
  SharedVersions shared;
  uint64_t bytes = 0;  // of sealed fragments for the disk
  Time staged_at{};    // when everything was sealed
  SnapshotTimer timer;
  LateRank late_rank;

  bool codecs_chosen = false;  // set when its first member begins
  EncodePlan encode_plan;      // for all its slabs; null: no unit is encoded

  ckpt::fb::AlarmPolicy alarm_policy = ckpt::fb::AlarmPolicy::Off;  // the strictest of its members
  ckpt::Step staleness_max = 0;                                     // the smallest; 0: no limit
  std::vector<std::shared_ptr<NotFiniteScan>> scans;                // one per extent
  SnapshotFacts facts;                                              // set just before the commit
  std::string alarms;                                               // text for messages
};

using OpenSnapshots = std::map<ckpt::SnapshotKey, OpenSnapshotState>;

// Shared by the parts of Snapshots, which owns all of it.
struct SnapshotCore {
  const SnapshotNeeds& needs;
  Ingest& ingest;
  OpenSnapshots& open;
  SnapshotCounters& counters;
  std::function<void(const Ingest::Actions&)> execute;
};

}  // namespace ckptd
