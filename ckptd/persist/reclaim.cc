#include "ckptd/persist/reclaim.h"

#include <spdlog/spdlog.h>

#include <charconv>

#include "ckptd/io/store_paths.h"

namespace ckptd {

namespace {

Status cut(Disk& disk, const std::string& path, uint64_t end) {
  CKPT_ASSIGN(const FileId file, disk.open(path, {}));
  const auto size = disk.size(file);
  Status status;
  if (!size.ok()) {
    status = size.error();
  } else if (*size > end) {
    spdlog::info("{}: {} bytes after its last commit are given back", path, *size - end);
    status = disk.truncate(file, end);
  }
  disk.close(file);
  return status;
}

}  // namespace

Status reclaim_unlisted(Disk& disk, const std::map<ckpt::SegmentId, uint64_t>& listed_ends) {
  CKPT_ASSIGN(const auto names, disk.list(kSegmentsDirectory));
  for (const std::string& name : names) {
    ckpt::SegmentId segment = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data(), end, segment);
    const std::string path = segment_path(segment);
    // A file that is not named as we name segments is not ours to touch.
    if (parsed.ec != std::errc() || path != fmt::format("{}/{}", kSegmentsDirectory, name))
      continue;
    const auto listed = listed_ends.find(segment);
    if (listed != listed_ends.end()) {
      CKPT_TRY(cut(disk, path, listed->second));
    } else {
      spdlog::info("{}: removed, no commit has bytes in it", path);
      CKPT_TRY(disk.remove(path));
    }
  }
  return disk.sync_directory(kSegmentsDirectory);
}

}  // namespace ckptd
