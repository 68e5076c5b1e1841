// SnapshotStall: how long snapshots have blocked training since the last step was reported. Pure.
#pragma once

#include <cstdint>

#include "trainer/checkpoint/snapshotter.h"

namespace moetrain {

struct SnapshotStall {
  double ms = 0;             // planning, waits and copy
  Snapshotter::Waits waits;  // the waits of the newest snapshot, parts of `ms`

  // Adds what a snapshot waited from `before` to `now`. `silence_ms` is the part of that time in
  // which ckptd did not answer: it counts neither as a wait for the disk nor for slabs.
  void add(const Snapshotter::Waits& before, const Snapshotter::Waits& now, uint64_t silence_ms);
};

}  // namespace moetrain
