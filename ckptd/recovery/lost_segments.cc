#include "ckptd/recovery/lost_segments.h"

#include <algorithm>

#include "ckptd/io/store_paths.h"

namespace ckptd {

uint64_t end_of_listed(const RecoveredStore& store, ckpt::SegmentId segment) {
  uint64_t end = ckpt::kBlockBytes;
  const auto listed = store.listed.find(segment);
  if (listed == store.listed.end()) return end;
  for (const ExtentPlace& extent : listed->second) {
    end = std::max(end, extent.offset + extent.bytes);
  }
  return end;
}

namespace {

bool lacks_listed_bytes(Disk& disk, const RecoveredStore& store, ckpt::SegmentId segment) {
  const auto file = disk.open(segment_path(segment), {});
  if (!file.ok()) return file.error().code == ckpt::ErrorCode::kNotFound;
  const auto bytes = disk.size(*file);
  disk.close(*file);
  return bytes.ok() && *bytes < end_of_listed(store, segment);
}

}  // namespace

Result<bool> any_segment_is_lost(Disk& disk, const RecoveredStore& store, const Catalog& catalog) {
  for (const auto& [segment, extents] : store.listed) {
    if (!lacks_listed_bytes(disk, store, segment)) continue;
    CKPT_ASSIGN(const uint64_t live, catalog.live_extents(segment));
    if (live > 0) return true;
  }
  return false;
}

}  // namespace ckptd
