// The parts of the daemon that jobs use. All of them outlive the jobs.
#pragma once

#include <atomic>
#include <functional>

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/whole_read.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/restore/segment_reader.h"
#include "ckptd/sources/sources.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

// Decoding work of all restores together. Threads of the executor add to it.
struct DecodeMeter {
  std::atomic<uint64_t> raw_bytes{0};
  std::atomic<uint64_t> nanoseconds{0};
};

// For a RestoreJob. It reads fragments only through `sources`; `staging` has the windows.
struct RestoreJobContext {
  Executor& executor;
  Staging& staging;
  const Catalog& catalog;
  Sources& sources;
  DecodeMeter* decoded = nullptr;
  HealCatalog heal_catalog = {};
  // A fragment of this commit is damaged on the disk; called once for each of them.
  std::function<void(const ckpt::SnapshotKey&)> on_damage = {};
};

// For readers of extents: verify, scrub, dedup.
struct RestoreContext {
  Disk& disk;
  Executor& executor;
  Staging& staging;
  SegmentReader& segments;
  const Catalog& catalog;
  DecodeMeter* decoded = nullptr;
  HealCatalog heal_catalog = {};
};

}  // namespace ckptd
