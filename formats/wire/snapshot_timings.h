// SnapshotTimings to and from its FlatBuffers struct.
#pragma once

#include "formats/base/snapshot_timings.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::wire {

inline fb::SnapshotTimings to_fb(const SnapshotTimings& timings) {
  return {timings.plan_ns, timings.begin_ns, timings.slab_wait_ns, timings.copy_ns,
          timings.seal_ns, timings.write_ns, timings.sync_ns,      timings.journal_ns};
}
inline SnapshotTimings from_fb(const fb::SnapshotTimings& timings) {
  return {.plan_ns = timings.plan(),
          .begin_ns = timings.begin(),
          .slab_wait_ns = timings.slab_wait(),
          .copy_ns = timings.copy(),
          .seal_ns = timings.seal(),
          .write_ns = timings.write(),
          .sync_ns = timings.sync(),
          .journal_ns = timings.journal()};
}

}  // namespace ckpt::wire
