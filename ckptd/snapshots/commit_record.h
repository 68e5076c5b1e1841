// The journal record of a commit, made from the state of its snapshot. Pure.
#pragma once

#include "ckptd/ingest/ingest.h"
#include "ckptd/snapshots/open_state.h"
#include "formats/commit.h"

namespace ckptd {

// Everything except the time. Sorts `open.extents`: the record does not depend on the order in
// which writes happened to finish.
ckpt::fb::CommittedT commit_record(const Ingest::CommitAction& action,
                                   const ckpt::AlarmList& alarms, OpenSnapshotState& open);

// The snapshot is not committed because of these alarms. Without the time.
ckpt::fb::SnapshotRefusedT refusal_record(const ckpt::SnapshotKey& key,
                                          const ckpt::AlarmList& alarms);

}  // namespace ckptd
