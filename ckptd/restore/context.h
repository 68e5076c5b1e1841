// What restores and verifies work with. All of it outlives them.
#pragma once

#include "ckptd/catalog/catalog.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/restore/segment_reader.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

struct RestoreContext {
  Disk& disk;
  Executor& executor;
  Staging& staging;
  SegmentReader& segments;
  const Catalog& catalog;
};

}  // namespace ckptd
