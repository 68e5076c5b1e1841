// The parts of the daemon that restore and verify jobs use. All of them outlive the jobs.
#pragma once

#include <atomic>

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/whole_read.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/restore/segment_reader.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

// Decoding work of all restores together. Threads of the executor add to it.
struct DecodeMeter {
  std::atomic<uint64_t> raw_bytes{0};
  std::atomic<uint64_t> nanoseconds{0};
};

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
